package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// page fetches one page of a list.
type page[T any] func(ctx context.Context, options metav1.ListOptions) ([]T, metav1.ListMeta, error)

// list reads a list whole, page by page, keeps what keep returns of each
// object, and records how it went. On any error nothing is kept.
func list[T, K any](ctx context.Context, r *reader, resource Resource, fetch page[T], keep func(*T) K) []K {
	started := time.Now()
	kept, err := readPages(ctx, r.options, r.options.PageSize, fetch, keep)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		// The list's version was compacted between two pages: once more, in one piece.
		started = time.Now()
		kept, err = readPages(ctx, r.options, 0, fetch, keep)
	}
	if err != nil {
		r.record(resource, started, 0, fmt.Errorf("list %s: %w", resource, err))
		return nil
	}
	r.record(resource, started, len(kept), nil)
	return kept
}

func readPages[T, K any](ctx context.Context, options Options, size int64, fetch page[T], keep func(*T) K) ([]K, error) {
	var kept []K
	query := metav1.ListOptions{Limit: size}
	for {
		items, meta, err := fetchPage(ctx, options.RequestTimeout, fetch, query)
		if err != nil {
			return nil, err
		}
		if meta.ResourceVersion == "" {
			return nil, fmt.Errorf("%w: the list has no resourceVersion, so it is not from a Kubernetes API", errMalformed)
		}
		if len(kept)+len(items) > options.MaxItems {
			return nil, fmt.Errorf("%w: more than %d", errTooMany, options.MaxItems)
		}
		for i := range items {
			kept = append(kept, keep(&items[i]))
		}
		if meta.Continue == "" {
			return kept, nil
		}
		query.Continue = meta.Continue
	}
}

func fetchPage[T any](ctx context.Context, timeout time.Duration, fetch page[T], query metav1.ListOptions) ([]T, metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	items, meta, err := fetch(ctx, query)
	if err == nil {
		return items, meta, nil
	}
	if ctx.Err() != nil {
		return nil, metav1.ListMeta{}, fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	_, fromAPI := errors.AsType[*apierrors.StatusError](err)
	_, fromTransport := errors.AsType[*url.Error](err)
	if !fromAPI && !fromTransport {
		err = fmt.Errorf("%w: %w", errMalformed, err) // the answer came and could not be decoded
	}
	return nil, metav1.ListMeta{}, err
}
