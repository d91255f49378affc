"""Methods of Tensor that read windows and neighbours along axes: resizing, adaptive pools, folds, samples of a grid."""
