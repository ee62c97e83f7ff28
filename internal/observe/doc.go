// Package observe shows what a process does: a flight recorder of its last control events,
// metrics in Prometheus's text format, and a socket for "allcast inspect". It does not depend on
// the engine, which supplies the data.
package observe
