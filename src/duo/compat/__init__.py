"""Other packages' interfaces, for programs that use them."""
