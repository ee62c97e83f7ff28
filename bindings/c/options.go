//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/units"
)

// options are the options of a Join.
type options struct {
	mu  sync.Mutex
	opt allcast.Options
	set map[string]bool

	// hidden are variables of the environment that an option overrides with the zero value of its field.
	hidden map[string]bool
	// level is the value for ALLCAST_DEBUG, or "".
	level string
}

var optionsTable = newTable[*options](optionsKind)

// A setter stores the value of an option.
type setter func(o *options, value string) error

var setters = map[string]setter{
	"rank":           number(func(o *allcast.Options) *int { return &o.Rank }),
	"size":           number(func(o *allcast.Options) *int { return &o.Size }),
	"addr":           text(func(o *allcast.Options) *string { return &o.Addr }),
	"attempt":        number(func(o *allcast.Options) *int { return &o.Attempt }),
	"key":            func(o *options, value string) error { o.opt.Key = []byte(value); return nil },
	"secure":         flag("ALLCAST_SECURE", func(o *allcast.Options, on bool) { o.Secure = on }),
	"integrity":      flag("ALLCAST_INTEGRITY", func(o *allcast.Options, on bool) { o.Integrity = on }),
	"aggregators":    text(func(o *allcast.Options) *string { return &o.Aggregators }),
	"site-key":       func(o *options, value string) error { o.opt.SiteKey = []byte(value); return nil },
	"interface":      text(func(o *allcast.Options) *string { return &o.Interface }),
	"fabric":         text(func(o *allcast.Options) *string { return &o.Fabric }),
	"device":         text(func(o *allcast.Options) *string { return &o.Device }),
	"rack":           text(func(o *allcast.Options) *string { return &o.Rack }),
	"rate":           parsed(func(o *allcast.Options) *float64 { return &o.Rate }, parseRate),
	"timeout":        parsed(func(o *allcast.Options) *time.Duration { return &o.Timeout }, parseDuration),
	"join-timeout":   parsed(func(o *allcast.Options) *time.Duration { return &o.JoinTimeout }, parseDuration),
	"deadline":       parsed(func(o *allcast.Options) *time.Duration { return &o.Deadline }, parseDuration),
	"subgroups":      number(func(o *allcast.Options) *int { return &o.Subgroups }),
	"groups":         parsed(func(o *allcast.Options) *[]netip.AddrPort { return &o.Groups }, list(netip.ParseAddrPort)),
	"comm-groups":    parsed(func(o *allcast.Options) *netip.Prefix { return &o.CommGroups }, netip.ParsePrefix),
	"chunk":          number(func(o *allcast.Options) *int { return &o.Chunk }),
	"ttl":            number(func(o *allcast.Options) *int { return &o.TTL }),
	"dscp":           number(func(o *allcast.Options) *int { return &o.DSCP }),
	"receive-buffer": number(func(o *allcast.Options) *int { return &o.ReceiveBuffer }),
	"plain-sockets":  flag("", func(o *allcast.Options, on bool) { o.PlainSockets = on }),
	"no-multicast":   flag("", func(o *allcast.Options, on bool) { o.NoMulticast = on }),
	"datapath":       text(func(o *allcast.Options) *string { return &o.Datapath }),
	"hook":           text(func(o *allcast.Options) *string { return &o.Hook }),
	"receive-cores":  parsed(func(o *allcast.Options) *[]int { return &o.ReceiveCores }, list(parseNumber)),
	"pin":            parsed(func(o *allcast.Options) *[]int { return &o.Pin }, list(parseNumber)),
	"tuning":         text(func(o *allcast.Options) *string { return &o.Tuning }),
	"calibrate":      flag("ALLCAST_CALIBRATE", func(o *allcast.Options, on bool) { o.NoCalibration = !on }),
	"log":            setLog,
}

// parsed returns a setter that parses a value into a field.
func parsed[T any](field func(*allcast.Options) *T, parse func(string) (T, error)) setter {
	return func(o *options, value string) error {
		v, err := parse(value)
		if err == nil {
			*field(&o.opt) = v
		}
		return err
	}
}

func number(field func(*allcast.Options) *int) setter { return parsed(field, parseNumber) }

func text(field func(*allcast.Options) *string) setter {
	return parsed(field, func(value string) (string, error) { return value, nil })
}

// flag returns a setter of a switch. A variable could still override the field, whose zero value means "not set".
func flag(variable string, set func(o *allcast.Options, on bool)) setter {
	return func(o *options, value string) error {
		if value != "on" && value != "off" {
			return errors.New("want on or off")
		}
		set(&o.opt, value == "on")
		o.hidden[variable] = true
		return nil
	}
}

func setLog(o *options, value string) error {
	o.opt.Logger, o.level = nil, ""
	switch value {
	case "off":
		o.opt.Logger = slog.New(slog.DiscardHandler)
	case "warn", "info", "debug", "trace":
		o.level = value
	default:
		return errors.New("want warn, info, debug, trace or off")
	}
	return nil
}

func parseNumber(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, errors.New("want a number")
	}
	return n, nil
}

func parseDuration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, errors.New("want a duration such as 10s or 1500ms")
	}
	return d, nil
}

func parseRate(value string) (float64, error) {
	r, err := units.ParseRate(value)
	return float64(r), err
}

// list returns a parser of values separated by commas.
func list[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(value string) (all []T, err error) {
		for part := range strings.SplitSeq(value, ",") {
			v, err := parse(part)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
}

func (o *options) apply(name, value string) error {
	set, ok := setters[name]
	if !ok {
		return fmt.Errorf("allcast: %w: unknown option %q; valid: %s", allcast.ErrOptions, name,
			strings.Join(slices.Sorted(maps.Keys(setters)), ", "))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := set(o, value); err != nil {
		return fmt.Errorf("allcast: %w: option %s=%q: %w", allcast.ErrOptions, name, value, err)
	}
	o.set[name] = true
	return nil
}

// resolve returns the options of a Join, and the environment for it.
func (o *options) resolve(env map[string]string) (allcast.Options, func(string) (string, bool), error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if (o.set["rank"] || o.set["addr"]) && !o.set["size"] || o.opt.Size > 1 && !o.set["rank"] {
		return allcast.Options{}, nil, fmt.Errorf("allcast: %w: of the options rank, size and addr, some are missing: set "+
			"rank, size, and addr or a store, or none of them to use the environment", allcast.ErrOptions)
	}
	hidden, level := maps.Clone(o.hidden), o.level
	return o.opt, func(name string) (string, bool) {
		switch {
		case hidden[name]:
			return "", false
		case name == "ALLCAST_DEBUG" && level != "":
			return level, true
		}
		value, ok := env[name]
		return value, ok
	}, nil
}

//export goOptionsNew
func goOptionsNew(f *C.struct_failure, handle *C.allcast_options) C.int {
	if err := checkOut("options", handle); err != nil {
		return report(f, err)
	}
	*handle = C.allcast_options(optionsTable.add(newOptions()))
	return C.ALLCAST_OK
}

func newOptions() *options { return &options{set: map[string]bool{}, hidden: map[string]bool{}} }

// optionsOf returns the options of a handle.
func optionsOf(handle C.allcast_options) (*options, error) {
	if o, ok := optionsTable.get(uint64(handle)); ok {
		return o, nil
	}
	return nil, invalid("%#x is no handle of options, or was freed", uint64(handle))
}

//export goOptionsSet
func goOptionsSet(
	f *C.struct_failure, handle C.allcast_options, name *C.char, value unsafe.Pointer, length C.size_t,
) C.int {
	o, err := optionsOf(handle)
	if err == nil && name == nil {
		err = invalid("the name of an option is NULL")
	}
	var b []byte
	if err == nil {
		b, err = buffer("value", value, length)
	}
	if err == nil {
		err = o.apply(C.GoString(name), string(b))
	}
	return report(f, err)
}

//export goOptionsFree
func goOptionsFree(f *C.struct_failure, handle C.allcast_options) C.int {
	_, err := optionsOf(handle)
	optionsTable.remove(uint64(handle))
	return report(f, err)
}
