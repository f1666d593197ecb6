package checks_test

import (
	"strconv"
	"testing"

	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

// BenchmarkEvaluate runs the catalogue over 1,000 nodes, 30,000 pods and
// 5,000 services in ten namespaces.
func BenchmarkEvaluate(b *testing.B) {
	snap := healthy()
	for i := range 1000 {
		n := *node(snap, "worker-1")
		n.Name = "big-" + strconv.Itoa(i)
		snap.Nodes = append(snap.Nodes, n)
	}
	for i := range 5000 {
		name, namespace := "app-"+strconv.Itoa(i), "ns-"+strconv.Itoa(i%10)
		labels := map[string]string{"app": name, "tier": "web"}
		first := strconv.Itoa(i % 1000)
		addWorkload(snap, "Deployment", namespace, name, labels,
			"big-"+first, "big-"+strconv.Itoa((i+1)%1000), "big-"+strconv.Itoa((i+2)%1000),
			"big-"+strconv.Itoa((i+3)%1000), "big-"+strconv.Itoa((i+4)%1000), "big-"+strconv.Itoa((i+5)%1000))
		snap.Services = append(snap.Services, snap.Services[0])
		s := &snap.Services[len(snap.Services)-1]
		s.Namespace, s.Name, s.Selector = namespace, name, labels
		slice := snap.EndpointSlices[0]
		slice.Namespace, slice.Name, slice.Service = namespace, name+"-x", name
		snap.EndpointSlices = append(snap.EndpointSlices, slice)
	}
	b.ReportAllocs()
	for b.Loop() {
		checks.Evaluate(snap)
	}
}
