//! A persistent map with texts as keys: a clone shares all nodes, and a change copies only the nodes of one
//! path.
//!
//! A node marks a position where keys branch or end, so a lookup visits at most as many nodes as the key has
//! bytes, regardless of the number of keys. No function recurses, because administrators choose the keys,
//! which may nest tens of thousands of nodes deep.

use std::mem;
use std::sync::Arc;

use super::bytes::Bytes;

/// The map. The default is empty.
#[derive(Clone, Debug)]
pub(super) struct Trie<V> {
    /// None while the trie is empty, as many tries are.
    root: Option<Arc<Node<V>>>,
}

/// A position where keys branch or end. Every node except the root has a value or at least two children.
#[derive(Clone, Debug)]
struct Node<V> {
    /// The common bytes of the node's keys after those of the parent.
    label: Bytes<FEW>,
    value: Option<V>,
    /// The first byte of each child's label, sorted.
    firsts: Bytes<FEW>,
    children: Vec<Arc<Node<V>>>,
}

/// Label bytes stored inline. Most labels fit.
const FEW: usize = 22;

impl<V> Node<V> {
    fn new(label: &[u8], value: Option<V>) -> Node<V> {
        Node { label: Bytes::new(label), value, firsts: Bytes::new(&[]), children: Vec::new() }
    }

    /// The child whose label is a prefix of `rest`, if any.
    fn child<'a>(&'a self, rest: &[u8]) -> Option<&'a Arc<Node<V>>> {
        let at = self.firsts.binary_search(rest.first()?).ok()?;
        Some(&self.children[at]).filter(|child| rest.starts_with(&child.label[..]))
    }
}

/// Drops exclusively owned nodes iteratively, because recursion could overflow the stack.
impl<V> Drop for Node<V> {
    fn drop(&mut self) {
        let mut unheld = mem::take(&mut self.children);
        while let Some(node) = unheld.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                unheld.append(&mut node.children);
            }
        }
    }
}

impl<V> Default for Trie<V> {
    fn default() -> Trie<V> {
        Trie { root: None }
    }
}

impl<V> Trie<V> {
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn get(&self, key: &str) -> Option<&V> {
        let (mut node, mut rest) = (self.root.as_ref()?, key.as_bytes());
        while !rest.is_empty() {
            node = node.child(rest)?;
            rest = &rest[node.label.len()..];
        }
        node.value.as_ref()
    }

    /// The values of all keys that are prefixes of `text`, shortest first.
    pub fn prefixes_of<'a, 'b>(&'a self, text: &'b str) -> impl Iterator<Item = &'a V> + use<'a, 'b, V> {
        let (mut next, mut length) = (self.root.as_ref(), 0);
        let nodes = std::iter::from_fn(move || {
            let node = next?;
            length += node.label.len();
            next = node.child(&text.as_bytes()[length..]);
            Some(node)
        });
        nodes.filter_map(|node| node.value.as_ref())
    }

    /// All values, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let mut pending: Vec<_> = self.root.iter().collect();
        let nodes = std::iter::from_fn(move || {
            let node = pending.pop()?;
            pending.extend(&node.children);
            Some(node)
        });
        nodes.filter_map(|node| node.value.as_ref())
    }
}

impl<V: Clone> Trie<V> {
    /// The value of a key for modification, created if missing.
    pub fn entry(&mut self, key: &str) -> &mut V
    where
        V: Default,
    {
        let root = self.root.get_or_insert_with(|| Arc::new(Node::new(&[], None)));
        let (mut node, mut rest) = (Arc::make_mut(root), key.as_bytes());
        while let Some(first) = rest.first() {
            let at = match node.firsts.binary_search(first) {
                Ok(at) => at,
                Err(at) => {
                    node.firsts = Bytes::new(&[&node.firsts[..at], &[*first], &node.firsts[at..]].concat());
                    node.children.insert(at, Arc::new(Node::new(rest, None)));
                    at
                }
            };
            let child = &mut node.children[at];
            let common = child.label.iter().zip(rest.iter()).take_while(|(a, b)| a == b).count();
            if common < child.label.len() {
                split(child, common);
            }
            node = Arc::make_mut(child);
            rest = &rest[common..];
        }
        node.value.get_or_insert_default()
    }

    /// Removes a key, if present.
    pub fn remove(&mut self, key: &str) {
        if self.get(key).is_none() {
            return;
        }
        // `kept` is the path length of the deepest node that stays if the node of the key is a leaf.
        let root = self.root.as_deref().expect("the key was just found");
        let (mut kept, mut node, mut rest, mut depth) = (0, root, key.as_bytes(), 0);
        while !rest.is_empty() {
            if depth == 0 || node.value.is_some() || node.children.len() > 1 {
                kept = key.len() - rest.len();
            }
            node = node.child(rest).expect("the key was just found");
            rest = &rest[node.label.len()..];
            depth += 1;
        }
        if !node.children.is_empty() || depth == 0 {
            let node = self.node_mut(key.as_bytes());
            node.value = None;
            join_only_child(node, depth == 0);
            return self.forget_empty_root();
        }
        let parent = self.node_mut(&key.as_bytes()[..kept]);
        let first = key.as_bytes()[kept];
        let at = parent.firsts.binary_search(&first).expect("the key was just found");
        parent.firsts = Bytes::new(&[&parent.firsts[..at], &parent.firsts[at + 1..]].concat());
        parent.children.remove(at);
        join_only_child(parent, kept == 0);
        self.forget_empty_root();
    }

    fn forget_empty_root(&mut self) {
        self.root.take_if(|root| root.value.is_none() && root.children.is_empty());
    }

    /// The node at the end of an existing path.
    fn node_mut(&mut self, mut rest: &[u8]) -> &mut Node<V> {
        let mut node = Arc::make_mut(self.root.as_mut().expect("the node was just found"));
        while let Some(first) = rest.first() {
            let at = node.firsts.binary_search(first).expect("the node was just found");
            node = Arc::make_mut(&mut node.children[at]);
            rest = &rest[node.label.len()..];
        }
        node
    }
}

/// Inserts a node without a value above this node, at `length` bytes of the label.
fn split<V: Clone>(node: &mut Arc<Node<V>>, length: usize) {
    let mut above = Node::new(&node.label[..length], None);
    above.firsts = Bytes::new(&[node.label[length]]);
    let below = mem::replace(node, Arc::new(Node::new(&[], None)));
    above.children.push(below);
    let below = Arc::make_mut(&mut above.children[0]);
    below.label = Bytes::new(&below.label[length..]);
    *node = Arc::new(above);
}

/// Merges a node into its only child, unless the node has a value or is the root.
fn join_only_child<V: Clone>(node: &mut Node<V>, is_root: bool) {
    if is_root || node.value.is_some() || node.children.len() != 1 {
        return;
    }
    let mut child = node.children.pop().expect("it has one child");
    let child = Arc::make_mut(&mut child);
    node.label = Bytes::new(&[&*node.label, &*child.label].concat());
    node.value = child.value.take();
    node.firsts = child.firsts.clone();
    node.children = mem::take(&mut child.children);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// True if every node is needed.
    fn is_tight<V>(trie: &Trie<V>) -> bool {
        let mut pending: Vec<_> = trie.root.iter().flat_map(|root| &root.children).collect();
        while let Some(node) = pending.pop() {
            if node.label.is_empty() || node.value.is_none() && node.children.len() < 2 {
                return false;
            }
            pending.extend(&node.children);
        }
        true
    }

    #[test]
    fn it_is_a_map() {
        let mut seed = 7_u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let (mut trie, mut map) = (Trie::<u64>::default(), BTreeMap::new());
        let mut snapshots = Vec::new();
        for step in 0..20_000 {
            let key: String =
                (0..random(6)).map(|_| char::from(b'a' + u8::try_from(random(3)).expect("small"))).collect();
            if random(2) == 0 {
                *trie.entry(&key) = step;
                map.insert(key.clone(), step);
            } else {
                trie.remove(&key);
                map.remove(&key);
            }
            assert_eq!(trie.get(&key), map.get(&key), "step {step}, {key}");
            assert!(is_tight(&trie), "step {step}");
            let expected: Vec<_> = (0..=key.len()).filter_map(|l| map.get(&key[..l]).copied()).collect();
            let found: Vec<_> = trie.prefixes_of(&key).copied().collect();
            assert_eq!(found, expected, "step {step}, {key}");
            if step % 1000 == 0 {
                snapshots.push((trie.clone(), map.clone()));
            }
        }
        for (trie, map) in snapshots {
            let mut values: Vec<_> = trie.values().copied().collect();
            values.sort_unstable();
            let mut expected: Vec<_> = map.values().copied().collect();
            expected.sort_unstable();
            assert_eq!(values, expected, "a copy does not change");
            assert!(map.iter().all(|(key, value)| trie.get(key) == Some(value)));
        }
        for key in map.keys() {
            trie.remove(key);
        }
        assert!(trie.is_empty());
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let nested = || {
            let key = "a".repeat(3000);
            let mut trie = Trie::<usize>::default();
            for length in 1..=key.len() {
                *trie.entry(&key[..length]) = length;
            }
            assert_eq!(trie.prefixes_of(&key).count(), key.len());
            let copy = trie.clone();
            trie.remove(&key);
            drop((trie, copy));
        };
        let small = std::thread::Builder::new().stack_size(64 * 1024);
        small.spawn(nested).expect("a thread").join().expect("the stack suffices");
    }
}
