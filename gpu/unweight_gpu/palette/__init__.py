"""BF16 matrices that stay compressed on the device, and products with them."""
