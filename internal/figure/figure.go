// Package figure draws plots as SVG, from data alone. A Figure survives JSON unchanged, so that a plot can be drawn
// again from its data file.
package figure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Figure is a plot with its data.
type Figure struct {
	Title  string   `json:"title"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
}

// Axis describes an axis.
type Axis struct {
	Label string `json:"label"`         // quantity and unit, such as "time, ms"
	Log   int    `json:"log,omitempty"` // base of a logarithmic scale: 2 or 10; 0 means linear
	// Names are the labels of the positions 0, 1, ..., for axes without numbers.
	Names []string `json:"names,omitempty"`
}

// Style says how a series is drawn.
type Style string

// Styles.
const (
	Line   Style = "line" // a line through its points, which are marked
	Points Style = "points"
	Bars   Style = "bars" // grouped side by side; X counts the names of the X axis
)

// Series is a set of points.
type Series struct {
	Name  string  `json:"name"` // in the legend
	Style Style   `json:"style"`
	Paper bool    `json:"paper,omitempty"` // whether the points are the paper's; they look different
	Data  []Point `json:"data"`
}

// Point is a point with an optional range.
type Point struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low,omitempty"` // Low and High are drawn as an error bar if they differ
	High float64 `json:"high,omitempty"`
}

// Read reads a figure from JSON.
func Read(r io.Reader) (*Figure, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	f := new(Figure)
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("not the data of a figure: %w", err)
	}
	if d.More() {
		return nil, errors.New("not the data of a figure: there is something after the object")
	}
	return f, nil
}
