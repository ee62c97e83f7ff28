// Package observe lets people see what a process does: a flight recorder of its last
// control events, metrics in Prometheus's text format, and a socket that "allcast
// inspect" asks. It knows nothing of the engine, which fills in what is shown.
package observe
