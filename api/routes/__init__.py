"""The operations of the API, a file for each group of them."""
