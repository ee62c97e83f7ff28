// Package testenv tells tests what they run under.
package testenv
