package main

import (
	"context"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/eventsink"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
)

// startRecordsPath opens the store of records and watches the Events of every
// cluster that can be asked.
func (u *up) startRecordsPath(context.Context) error {
	store, err := embedded.Open(embedded.Config{
		Dir: filepath.Join(u.cfg.dataDir, "records"), MaxAge: u.cfg.eventRetention, Logger: u.log, Registerer: u.reg,
	})
	if err != nil {
		return err
	}
	var clusters []eventsink.Cluster
	for _, c := range u.fleet.Clusters() {
		config, err := c.RESTConfig()
		if err != nil {
			config = &rest.Config{Host: c.Server, Transport: refuse{err}}
		}
		clusters = append(clusters, eventsink.Cluster{Name: c.ID, REST: config})
	}
	sink, err := eventsink.New(eventsink.Config{Clusters: clusters, Journal: store, Logger: u.log, Registerer: u.reg})
	if err != nil {
		return err
	}
	u.store, u.events = store, sink
	u.stack.start(func(ctx context.Context) error {
		<-ctx.Done()
		return store.Close()
	})
	u.stack.start(store.Run)
	u.stack.start(sink.Run)
	return nil
}

// refuse answers every request with the reason why its cluster cannot be asked.
type refuse struct{ err error }

func (r refuse) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }
