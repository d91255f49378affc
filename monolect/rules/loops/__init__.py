"""Replace loops of kernels by rules: reductions with a closed form, running sums, concatenation."""
