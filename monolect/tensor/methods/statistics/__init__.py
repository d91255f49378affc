"""Methods that describe samples along axes: reductions without nan, covariances, differences, integrals."""
