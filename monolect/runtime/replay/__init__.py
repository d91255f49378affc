"""Record steps as IR, store them in files, bind them to memory and replay them."""
