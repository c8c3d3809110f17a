//! Counted stacks, which become the processor time of a process by stack.

use std::collections::BTreeMap;

use super::kind;
use crate::result::CpuProfile;

/// Maximum number of different stacks in a result.
const STACKS_MAX: usize = 2000;
/// Maximum number of different stacks in memory; samples of later ones are counted together.
const STACKS_COUNTED_MAX: usize = 200_000;
/// Maximum number of frames of a stack; outer ones are cut off.
const FRAMES_MAX: usize = 160;
/// Maximum length of a name, in characters.
const NAME_MAX: usize = 240;

/// Stacks with their number of samples.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    frames: BTreeMap<String, u32>,
    stacks: BTreeMap<Vec<u32>, u64>,
    samples: u64,
    left_out: u64,
}

impl Stacks {
    /// Counts a sample of a thread with this stack, innermost function first.
    pub(super) fn add(&mut self, thread: &str, stack: &[String]) {
        self.samples += 1;
        let (stack, is_cut) = match stack.get(..FRAMES_MAX) {
            Some(inner) => (inner, true),
            None => (stack, false),
        };
        let cut = is_cut.then_some("[outer frames cut]");
        let names = std::iter::once(kind(thread)).chain(cut.map(str::to_owned));
        let names: Vec<String> = names.chain(stack.iter().rev().map(|name| plain(name))).collect();
        let key: Vec<u32> = names.into_iter().map(|name| self.frame(name)).collect();
        match self.stacks.len() < STACKS_COUNTED_MAX || self.stacks.contains_key(&key) {
            true => *self.stacks.entry(key).or_default() += 1,
            false => self.left_out += 1,
        }
    }

    fn frame(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        *self.frames.entry(name).or_insert(next)
    }

    /// The profile; `None` without samples.
    pub(super) fn profile(self, method: &str) -> Option<CpuProfile> {
        if self.samples == 0 {
            return None;
        }
        let mut stacks: Vec<(Vec<u32>, u64)> = self.stacks.into_iter().collect();
        stacks.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let rare = stacks.split_off(stacks.len().min(STACKS_MAX));
        let left_out = self.left_out + rare.iter().map(|(_, samples)| samples).sum::<u64>();
        // Only the names that are left.
        let mut names: Vec<String> = vec![String::new(); self.frames.len()];
        for (name, index) in self.frames {
            names[index as usize] = name;
        }
        let mut kept: BTreeMap<u32, u32> = BTreeMap::new();
        let mut frames: Vec<String> = Vec::new();
        for frame in stacks.iter_mut().flat_map(|(stack, _)| stack) {
            *frame = *kept.entry(*frame).or_insert_with(|| {
                frames.push(names[*frame as usize].clone());
                u32::try_from(frames.len() - 1).unwrap_or(u32::MAX)
            });
        }
        Some(CpuProfile { method: method.to_owned(), samples: self.samples, left_out, frames, stacks })
    }
}

/// A name without the separator of folded stacks, and of limited length.
fn plain(name: &str) -> String {
    let mut plain: String =
        name.chars().take(NAME_MAX).map(|c| if c == ';' || c == '\n' { ':' } else { c }).collect();
    if name.chars().nth(NAME_MAX).is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn samples_of_one_stack_are_counted_by_kind_of_thread() {
        let mut stacks = Stacks::default();
        stacks.add("handler-1", &stack(&["write", "append;x", "main"]));
        stacks.add("handler-2", &stack(&["write", "append;x", "main"]));
        stacks.add("other", &stack(&["read"]));
        let profile = stacks.profile("perf").expect("there are samples");
        assert_eq!((profile.samples, profile.left_out), (3, 0));
        assert_eq!(profile.folded(), "handler-*;main;append:x;write 2\nother;read 1\n");
        assert_eq!(Stacks::default().profile("perf"), None);
    }

    #[test]
    fn rare_and_deep_stacks_are_cut_with_a_mark() {
        let mut stacks = Stacks::default();
        for number in 0..STACKS_MAX + 5 {
            stacks.add("t", &stack(&[&format!("f{number}")]));
        }
        stacks.add("t", &stack(&["f7"]));
        let deep: Vec<String> = (0..FRAMES_MAX + 9).map(|depth| format!("d{depth}")).collect();
        (0..3).for_each(|_| stacks.add("t", &deep));
        let profile = stacks.profile("perf").expect("there are samples");
        assert_eq!(profile.stacks.len(), STACKS_MAX);
        assert_eq!(profile.left_out, 6);
        let first = profile.folded().lines().next().expect("a line").to_owned();
        assert!(first.starts_with("t;[outer frames cut];d159;") && first.ends_with(";d1;d0 3"), "{first}");
        assert!(profile.frames.len() < STACKS_MAX + 200, "names of rare stacks are left out");
    }
}
