"""Records in the deep stores, and a lost catalog made again from them."""
