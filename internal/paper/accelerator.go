package paper

import "github.com/allcast/allcast/internal/model/dpa"

// accelerator compares the model with Table I and Figures 13 to 16: claims C11 to C14.
func accelerator() (string, error) {
	return render("accelerator.md.tmpl", map[string]any{
		"Tables": dpa.Compare(), "Parameters": dpa.Parameters(), "Loss": 100 * dpa.LossOfTwo(),
		"PortUC": dpa.PortLimit(dpa.UC), "PortUD": dpa.PortLimit(dpa.UD),
	})
}
