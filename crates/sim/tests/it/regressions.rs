//! Seeds that once found something, by what they found.
