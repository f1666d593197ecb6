package sharder

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Options bound what Plan may do. Zero values mean the defaults.
type Options struct {
	// Capacity is how many head series one shard is meant to hold; default 3,000,000.
	Capacity int64
	// Fill is the part of Capacity that placement may use; default 0.85.
	Fill float64
	// Relief is the part of Capacity down to which an overloaded shard is
	// relieved; default 0.93. It is overloaded above Capacity.
	Relief float64
	// MoveBudget is the part of Capacity that may move in one plan; default 0.25.
	MoveBudget float64
	// MaxMoves bounds the moves of one plan; default 20.
	MaxMoves int
}

func (o Options) withDefaults() Options {
	o.Capacity = cmp.Or(o.Capacity, 3_000_000)
	o.Fill = cmp.Or(o.Fill, 0.85)
	o.Relief = cmp.Or(o.Relief, 0.93)
	o.MoveBudget = cmp.Or(o.MoveBudget, 0.25)
	o.MaxMoves = cmp.Or(o.MaxMoves, 20)
	return o
}

func (o Options) validate() error {
	if o.Capacity < 1 || o.Fill <= 0 || o.Fill > 1 || o.Relief < o.Fill || o.Relief > 1 || o.MoveBudget < 0 || o.MaxMoves < 0 {
		return fmt.Errorf("planner options %+v: want capacity >= 1, 0 < fill <= relief <= 1, budget and moves >= 0", o)
	}
	return nil
}

func (o Options) part(f float64) int64 { return int64(f * float64(o.Capacity)) }

// ShardLoad is a shard as Plan sees it.
type ShardLoad struct {
	Name string `json:"name"`
	// Up shards can take targets; one that is down keeps what it has.
	Up bool `json:"up"`
	// HeadSeries is the observed head. It may exceed the weights: series that
	// left stay in the head for up to three hours.
	HeadSeries int64 `json:"head_series"`
}

// Item is one target as Plan sees it.
type Item struct {
	ID     string `json:"id"`
	Weight int64  `json:"weight"`
	// Shard is where the target is; empty, or a shard that is not among the
	// given ones, means nowhere.
	Shard string `json:"shard,omitempty"`
	// Scraped says that the head of Shard holds the target's series already.
	Scraped bool `json:"scraped,omitempty"`
	// HoldUntil forbids moves before it.
	HoldUntil time.Time `json:"hold_until,omitzero"`
}

// Placement puts a target that was nowhere on a shard.
type Placement struct {
	ID     string `json:"id"`
	Shard  string `json:"shard"`
	Reason string `json:"reason"`
}

// Relocation moves a target between shards.
type Relocation struct {
	ID     string `json:"id"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// Decisions are what Plan found, in the order in which to do them.
type Decisions struct {
	Placements []Placement  `json:"placements,omitempty"`
	Moves      []Relocation `json:"moves,omitempty"`
	// Unplaced targets stay nowhere, because no shard is up.
	Unplaced []string `json:"unplaced,omitempty"`
	// Overfull shards hold more than their capacity after all this.
	Overfull []string `json:"overfull,omitempty"`
	// MissingShards is how many more shards the targets want.
	MissingShards int `json:"missing_shards,omitempty"`
}

// load is a shard while a plan grows.
type load struct {
	ShardLoad
	live     int64 // weights of its targets: triggers relief
	admitted int64 // the greater of live and the head: decides what fits
}

func (l *load) add(weight int64) { l.live += weight; l.admitted += weight }

// Plan decides where targets go. It is deterministic: equal inputs in any
// order give equal decisions. Targets that are placed stay, except that a
// shard above its capacity is relieved within the budget. Targets that are
// nowhere are placed by descending weight on the fullest shard where they
// fit, and where none fits on the least loaded one, never nowhere.
func Plan(now time.Time, shards []ShardLoad, items []Item, opts Options) Decisions {
	opts = opts.withDefaults()
	p := planner{now: now, opts: opts, byName: make(map[string]*load, len(shards))}
	for _, s := range shards {
		l := &load{ShardLoad: s}
		p.loads = append(p.loads, l)
		p.byName[s.Name] = l
	}
	slices.SortFunc(p.loads, func(a, b *load) int { return cmp.Compare(a.Name, b.Name) })
	items = slices.Clone(items)
	slices.SortFunc(items, heavierFirst)
	p.tally(items)
	p.place(items)
	p.relieve(items)
	p.sumUp(items)
	return p.out
}

func heavierFirst(a, b Item) int {
	return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.ID, b.ID))
}

type planner struct {
	now    time.Time
	opts   Options
	loads  []*load // by name
	byName map[string]*load
	out    Decisions
}

func (p *planner) tally(items []Item) {
	fresh := make(map[string]int64, len(p.loads))
	for _, it := range items {
		if l := p.byName[it.Shard]; l != nil {
			l.live += it.Weight
			if !it.Scraped {
				fresh[it.Shard] += it.Weight
			}
		}
	}
	for _, l := range p.loads {
		l.admitted = max(l.live, l.HeadSeries+fresh[l.Name])
	}
}

func (p *planner) place(items []Item) {
	for _, it := range items {
		if p.byName[it.Shard] != nil {
			continue
		}
		to, reason := p.bestFit(it.Weight, ""), "best fit by weight"
		if to == nil {
			to, reason = p.leastLoaded(), "no shard has room: least loaded"
		}
		if to == nil {
			p.out.Unplaced = append(p.out.Unplaced, it.ID)
			continue
		}
		to.add(it.Weight)
		p.out.Placements = append(p.out.Placements, Placement{ID: it.ID, Shard: to.Name, Reason: reason})
	}
}

// bestFit is the fullest shard that still has room within Fill. When the heads
// leave no room anywhere, the weights of the targets decide: what a head holds
// beyond them goes by itself, and must not keep targets on an overfull shard.
func (p *planner) bestFit(weight int64, except string) *load {
	if best := p.bestBy(admitted, weight, except); best != nil {
		return best
	}
	return p.bestBy(live, weight, except)
}

func admitted(l *load) int64 { return l.admitted }
func live(l *load) int64     { return l.live }

func (p *planner) bestBy(size func(*load) int64, weight int64, except string) *load {
	var best *load
	room := p.opts.part(p.opts.Fill)
	for _, l := range p.loads {
		if l.Up && l.Name != except && size(l)+weight <= room && (best == nil || size(l) > size(best)) {
			best = l
		}
	}
	return best
}

func (p *planner) leastLoaded() *load {
	var least *load
	for _, l := range p.loads {
		if l.Up && (least == nil || l.live < least.live) {
			least = l
		}
	}
	return least
}

// relieve moves targets off shards whose targets outweigh the capacity. The
// observed head does not count here: series that left leave the head by
// themselves, and moves would only add more of them.
func (p *planner) relieve(items []Item) {
	budget := p.opts.part(p.opts.MoveBudget)
	over := slices.DeleteFunc(slices.Clone(p.loads), func(l *load) bool { return !l.Up || l.live <= p.opts.Capacity })
	slices.SortStableFunc(over, func(a, b *load) int { return cmp.Compare(b.live, a.live) })
	for _, from := range over {
		movable := slices.DeleteFunc(slices.Clone(items), func(it Item) bool {
			return it.Shard != from.Name || it.Weight <= 0 || it.HoldUntil.After(p.now)
		})
		for len(p.out.Moves) < p.opts.MaxMoves {
			excess := from.live - p.opts.part(p.opts.Relief)
			if excess <= 0 {
				break
			}
			i, to := p.pick(movable, excess, budget, from.Name)
			if to == nil {
				break
			}
			it := movable[i]
			movable = slices.Delete(movable, i, i+1)
			budget -= it.Weight
			from.add(-it.Weight)
			to.add(it.Weight)
			p.out.Moves = append(p.out.Moves, Relocation{ID: it.ID, From: from.Name, To: to.Name, Reason: "relieves an overloaded shard"})
		}
	}
}

// pick chooses from items, heaviest first, the lightest that covers the
// excess alone, else the heaviest; in either case one that fits elsewhere.
func (p *planner) pick(items []Item, excess, budget int64, from string) (int, *load) {
	best, to := -1, (*load)(nil)
	for i, it := range items {
		if it.Weight < excess && to != nil {
			break
		}
		if it.Weight > budget {
			continue
		}
		if l := p.bestFit(it.Weight, from); l != nil {
			best, to = i, l
		}
	}
	return best, to
}

func (p *planner) sumUp(items []Item) {
	var total int64
	for _, it := range items {
		total += it.Weight
	}
	for _, l := range p.loads {
		if l.live > p.opts.Capacity {
			p.out.Overfull = append(p.out.Overfull, l.Name)
		}
	}
	wanted := int(math.Ceil(float64(total) / (p.opts.Fill * float64(p.opts.Capacity))))
	p.out.MissingShards = max(0, wanted-len(p.loads))
}
