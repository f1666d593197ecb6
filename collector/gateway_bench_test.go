package collector_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exposition is what one scrape of a middling target looks like: 4,000 series.
func exposition() []byte {
	var b bytes.Buffer
	b.WriteString("# HELP application_requests_total Requests.\n# TYPE application_requests_total counter\n")
	for i := range 4000 {
		fmt.Fprintf(&b, "application_requests_total{code=\"%d\",handler=\"/api/v1/resource/%d\",method=\"GET\"} %d\n", 200+i%5, i, i*7919%100003)
	}
	return b.Bytes()
}

// BenchmarkGateway compares the CPU of this whole process (client, target and,
// in the second case, the gateway) for one scraped MB. The difference of the
// two is what the gateway costs; its ratio to fetching directly is reported.
func BenchmarkGateway(b *testing.B) {
	plain := exposition()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = zip.Write(plain)
	_ = zip.Close()
	for _, c := range []struct {
		name, encoding string
		body           []byte
	}{{"identity", "", plain}, {"gzip", "gzip", zipped.Bytes()}} {
		// The target has its body ready, which is the hard case for the gateway:
		// a real one renders and compresses it for each scrape.
		host, port := serveTarget(b, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			if c.encoding == "" {
				_, _ = w.Write(plain)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(c.body)
		})
		r := start(b, newFakeAPI(b, annotatedPod("p", host, port, nil)), nil)
		list := r.await(b, "the pod is found", synced)
		direct := measure(b, c.name+"/direct", "http://"+host+":"+port+"/metrics", c.encoding, len(plain))
		through := measure(b, c.name+"/gateway", list.Targets[0].ScrapeURL, c.encoding, len(plain))
		if direct > 0 && through > 0 {
			fmt.Printf("%s: direct %.2f, through the gateway %.2f CPU-ms per scraped MB (ratio %.2f)\n", c.name, direct, through, through/direct)
		}
	}
}

// measure returns CPU milliseconds per MB of exposition, unpacked and read by
// a client as a shard does it.
func measure(b *testing.B, name, url, encoding string, size int) (cpuPerMB float64) {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	b.Run(name, func(b *testing.B) {
		before := cpuTime(b)
		for b.Loop() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", encoding)
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			var body io.Reader = resp.Body
			if strings.Contains(resp.Header.Get("Content-Encoding"), "gzip") {
				if body, err = gzip.NewReader(resp.Body); err != nil {
					b.Fatal(err)
				}
			}
			n, err := io.Copy(io.Discard, body)
			resp.Body.Close()
			if err != nil || n != int64(size) {
				b.Fatalf("%d bytes of %d: %v", n, size, err)
			}
		}
		mb := float64(size) * float64(b.N) / 1e6
		cpuPerMB = float64((cpuTime(b) - before).Microseconds()) / 1000 / mb
		b.SetBytes(int64(size))
		b.ReportMetric(cpuPerMB, "cpu-ms/MB")
	})
	return cpuPerMB
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
