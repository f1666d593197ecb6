// Package buildinfo says which build of Fleetwatch this is.
package buildinfo

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// version is set by the linker; see the Makefile.
var version = "dev"

// Version is the released version, or "dev" for a build without one.
func Version() string { return version }

// Revision is the commit that the binary was built from, when known.
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// Collector exports fleetwatch_build_info.
func Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "fleetwatch_build_info",
		Help:        "Always 1; its labels say which build is running.",
		ConstLabels: prometheus.Labels{"version": Version(), "revision": Revision()},
	}, func() float64 { return 1 })
}
