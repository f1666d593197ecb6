package main

import "os"
import "github.com/fleetwatch-io/fleetwatch/testbed/kube"

func main() { kube.Main(os.Args[1], os.Args[2:]) }
