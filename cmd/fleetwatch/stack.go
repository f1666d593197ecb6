package main

import (
	"context"
	"errors"
	"sync"
)

// stack runs what `fleetwatch up` is made of. Unlike a group, whose actors are
// all known before any runs, a stack grows while it runs: the clusters are known
// only once the testbed is up. What was started last is stopped first, and each
// has ended before the next is stopped.
type stack struct {
	base   context.Context // outlives the signal, so that actors end in order
	failed chan error      // the first actor that ended by itself

	mu     sync.Mutex // guards actors
	actors []stackActor
}

type stackActor struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func newStack(ctx context.Context) *stack {
	return &stack{base: context.WithoutCancel(ctx), failed: make(chan error, 1)}
}

// errActorEnded is the error of an actor that returned nil before its time.
var errActorEnded = errors.New("ended by itself")

// start runs fn until stop reaches it. Several fns started in one call are
// stopped together.
func (s *stack) start(fns ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(s.base)
	var wg sync.WaitGroup
	for _, fn := range fns {
		wg.Go(func() {
			err := fn(ctx)
			if ctx.Err() != nil {
				return
			}
			select {
			case s.failed <- errors.Join(err, errActorEnded):
			default: // an earlier failure is already on its way
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actors = append(s.actors, stackActor{cancel, done})
}

// stop ends everything in reverse order and returns when all has ended.
func (s *stack) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.actors) > 0 {
		last := s.actors[len(s.actors)-1]
		last.cancel()
		<-last.done
		s.actors = s.actors[:len(s.actors)-1]
	}
}
