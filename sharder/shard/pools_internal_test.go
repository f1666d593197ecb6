package shard

import (
	"testing"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

func FuzzTranslate(f *testing.F) {
	f.Add("job_name: a/b\nscrape_interval: 5s", "http://127.0.0.1:1/clusters/a/targets/1/metrics", "instance", "x")
	f.Add("job_name: a/b\nrelabel_configs: [{action: drop}]", "http://h/%2F", "__address__", "y")
	f.Add("job_name: a/b\nstatic_configs: [{targets: [h]}]", "://", "", "\xff")
	f.Add("- a\n- b", "https://h:99999/?a=b&a=c", "job", "")
	f.Add("a: &x [*x]", "http://h", "le", "z")
	f.Fuzz(func(t *testing.T, text, url, name, value string) {
		a := target.Assignment{
			Pools:   []target.Pool{{Name: "a/b", Config: text}},
			Targets: []target.Target{{ID: "1", Pool: "a/b", ScrapeURL: url, Labels: map[string]string{name: value}}},
		}
		w := translate(a, nil)
		if scraped := len(w.keys["a/b"]) == 1; scraped == (w.invalid["1"] != nil) {
			t.Errorf("scraped %v, and invalid: %v", scraped, w.invalid["1"])
		}
		if (w.configs["a/b"] == nil) != (w.badPool["a/b"] != nil) {
			t.Errorf("pool config %v, and bad: %v", w.configs["a/b"], w.badPool["a/b"])
		}
	})
}
