// Package content is what lives in a testbed cluster: nodes, workloads, the
// mirror pods of real processes, and the configuration by which KWOK simulates
// the rest. It is pure apart from Apply, which writes objects to a cluster.
package content

// Labels by which the testbed's parts know what is theirs.
const (
	// LabelProcess on a pod: the pod stands for the real process of that name,
	// or for one of several (Instances), and the testbed writes its status.
	LabelProcess = "testbed.fleetwatch.io/process"
	// LabelBehaviour on a pod: how it misbehaves.
	LabelBehaviour = "testbed.fleetwatch.io/behaviour"
	// LabelHeartbeat on a node: whether KWOK renews its lease.
	LabelHeartbeat = "testbed.fleetwatch.io/heartbeat"
	// LabelFault on an object: the fault that made it.
	LabelFault = "testbed.fleetwatch.io/fault"

	BehaviourImagePull = "image-pull-failure"
	BehaviourCrashLoop = "crash-loop"

	HeartbeatOn  = "on"
	HeartbeatOff = "off"
)

// FieldManager owns what Apply writes.
const FieldManager = "testbed"
