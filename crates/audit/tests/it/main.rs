//! A trail from its near end to the files.

mod files;
