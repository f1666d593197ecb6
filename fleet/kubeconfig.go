package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/homedir"
)

// extensionName is the kubeconfig context extension that carries what
// Fleetwatch wants to know of a cluster: {"environment": "production"}.
const extensionName = "fleetwatch.io/cluster"

type extension struct {
	Environment string `json:"environment"`
}

// DefaultKubeconfig is $KUBECONFIG, else ~/.kube/config when that file exists,
// else "".
func DefaultKubeconfig() string {
	if env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		return env
	}
	file := filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	return ""
}

// FromKubeconfig reads the clusters of a kubeconfig (a file, or a list of files
// as in $KUBECONFIG): those of the named contexts in that order, or of all
// contexts sorted by name when none is named. A cluster's ID names its context
// as well. A file that is missing or
// malformed, an unknown context and two contexts with the same ID are errors; a
// context that is incomplete is a cluster whose RESTConfig returns the reason.
func FromKubeconfig(path string, contexts []string) ([]Cluster, error) {
	config, err := load(path)
	if err != nil {
		return nil, err
	}
	if len(contexts) == 0 {
		for name := range config.Contexts {
			contexts = append(contexts, name)
		}
		slices.Sort(contexts)
	}
	if len(contexts) == 0 {
		return nil, fmt.Errorf("kubeconfig %s has no contexts; add one with kubectl config set-context", path)
	}
	clusters := make([]Cluster, 0, len(contexts))
	byID := map[string]string{}
	for _, name := range contexts {
		c, err := fromContext(config, path, name)
		if err != nil {
			return nil, err
		}
		if other, taken := byID[c.ID]; taken {
			return nil, fmt.Errorf("contexts %q and %q of kubeconfig %s give the same cluster ID %q; rename one with kubectl config rename-context", other, name, path, c.ID)
		}
		byID[c.ID] = name
		clusters = append(clusters, c)
	}
	return clusters, nil
}

func load(path string) (*api.Config, error) {
	if path == "" {
		return nil, errors.New("no kubeconfig: set KUBECONFIG or give --kubeconfig FILE")
	}
	merged := api.NewConfig()
	files := filepath.SplitList(path)
	for _, file := range files {
		one, err := clientcmd.LoadFromFile(file)
		if errors.Is(err, os.ErrNotExist) {
			if len(files) > 1 {
				continue // as kubectl does with $KUBECONFIG
			}
			return nil, fmt.Errorf("kubeconfig %s does not exist; set KUBECONFIG or give --kubeconfig FILE", file)
		}
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %s; check it with kubectl config view --kubeconfig %s", file, firstLine(err), file)
		}
		if err := clientcmd.ResolveLocalPaths(one); err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
		}
		mergeMissing(merged.Clusters, one.Clusters)
		mergeMissing(merged.AuthInfos, one.AuthInfos)
		mergeMissing(merged.Contexts, one.Contexts)
	}
	if len(files) > 1 && len(merged.Contexts) == 0 {
		return nil, fmt.Errorf("none of the kubeconfig files %s has a context; check KUBECONFIG", path)
	}
	return merged, nil
}

// mergeMissing adds what into lacks: the first file that names a thing wins.
func mergeMissing[T any](into, from map[string]T) {
	for name, v := range from {
		if _, ok := into[name]; !ok {
			into[name] = v
		}
	}
}

func fromContext(config *api.Config, path, name string) (Cluster, error) {
	name = contextOf(config, name)
	context, ok := config.Contexts[name]
	if !ok {
		return Cluster{}, fmt.Errorf("kubeconfig %s has no context %q; it has: %s", path, name, strings.Join(contextNames(config), ", "))
	}
	id, err := idOf(name)
	if err != nil {
		return Cluster{}, err
	}
	c := Cluster{ID: id, Alias: name, Kubeconfig: path, Context: name}
	if cluster, ok := config.Clusters[context.Cluster]; ok {
		c.Server = cluster.Server
	}
	c.Environment = environmentOf(context)
	if c.config, c.err = restConfig(config, path, name); c.err == nil {
		bound(c.config, c.ID, maxAnswer)
	}
	return c, nil
}

// contextOf returns the context that is meant by its name or by the ID of its
// cluster.
func contextOf(config *api.Config, name string) string {
	if _, ok := config.Contexts[name]; ok {
		return name
	}
	for _, context := range contextNames(config) {
		if id, err := idOf(context); err == nil && id == name {
			return context
		}
	}
	return name
}

func contextNames(config *api.Config) []string {
	names := make([]string, 0, len(config.Contexts))
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func environmentOf(context *api.Context) string {
	unknown, ok := context.Extensions[extensionName].(*runtime.Unknown)
	if !ok {
		return ""
	}
	var e extension
	if json.Unmarshal(unknown.Raw, &e) != nil {
		return "" // somebody else's extension of the same name
	}
	return e.Environment
}

func restConfig(config *api.Config, path, name string) (*rest.Config, error) {
	context := config.Contexts[name]
	if _, ok := config.Clusters[context.Cluster]; !ok {
		return nil, fmt.Errorf("context %q of kubeconfig %s names cluster %q, which the file lacks; mend it and start again", name, path, context.Cluster)
	}
	if _, ok := config.AuthInfos[context.AuthInfo]; context.AuthInfo != "" && !ok {
		return nil, fmt.Errorf("context %q of kubeconfig %s names user %q, which the file lacks; mend it and start again", name, path, context.AuthInfo)
	}
	rc, err := clientcmd.NewNonInteractiveClientConfig(*config, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("use context %q of kubeconfig %s: %s", name, path, firstLine(err))
	}
	// One cluster's clients share no limiter with another's; the limits are
	// client-go's defaults times ten, which still is modest for an API server.
	rc.QPS, rc.Burst = 50, 100
	rc.UserAgent = "fleetwatch"
	return rc, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
