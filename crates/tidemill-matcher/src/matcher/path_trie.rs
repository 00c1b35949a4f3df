//! All paths that the rules of a bucket name, as a tree of their names.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use serde_json::Value;

use super::event_values::EventValues;
use super::slab::{Slab, Slot};
use super::value_hash::ValueHasher;
use crate::filter::{FieldPath, position};

/// A path that some rule names: its node in the tree.
pub(super) type PathId = Slot;

#[derive(Debug)]
pub(super) struct PathTrie {
    nodes: Slab<TrieNode>,
    root: PathId,
}

#[derive(Debug)]
struct TrieNode {
    parent: PathId,
    name: Box<str>,
    /// How many conditions look here.
    uses: u32,
    children: HashMap<Box<str>, PathId, FixedState>,
}

impl TrieNode {
    fn new(parent: PathId, name: &str, seed: u64) -> Self {
        let children = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { parent, name: name.into(), uses: 0, children }
    }
}

impl PathTrie {
    pub(super) fn new() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(TrieNode::new(0, "", 0));
        Self { nodes, root }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes[self.root].children.is_empty()
    }

    /// The number of `path`, which is kept until it is given back.
    pub(super) fn keep(&mut self, path: &FieldPath, hasher: &ValueHasher) -> PathId {
        let mut at = self.root;
        for name in path.segments() {
            at = if let Some(child) = self.nodes[at].children.get(name) {
                *child
            } else {
                let child = self.nodes.insert(TrieNode::new(at, name, hasher.seed()));
                self.nodes[at].children.insert(name.into(), child);
                child
            };
        }
        self.nodes[at].uses += 1;
        at
    }

    pub(super) fn give_back(&mut self, path: PathId) {
        self.nodes[path].uses -= 1;
        let mut at = path;
        while at != self.root && self.nodes[at].uses == 0 && self.nodes[at].children.is_empty() {
            let gone = self.nodes.remove(at);
            self.nodes[gone.parent].children.remove(&gone.name);
            at = gone.parent;
        }
    }

    /// What `data` has at these paths. It costs what the smaller of the two has, level by level.
    pub(super) fn values<'e>(&self, data: &'e Value, scans: u32) -> EventValues<'e> {
        let mut found = Vec::new();
        self.walk(self.root, data, &mut found);
        EventValues::new(found, scans)
    }

    fn walk<'e>(&self, at: PathId, value: &'e Value, found: &mut Vec<(PathId, &'e Value)>) {
        let node = &self.nodes[at];
        if node.uses > 0 {
            found.push((at, value));
        }
        if node.children.is_empty() {
            return;
        }
        match value {
            Value::Object(fields) if fields.len() <= node.children.len() * 2 => {
                for (name, value) in fields {
                    if let Some(child) = node.children.get(name.as_str()) {
                        self.walk(*child, value, found);
                    }
                }
            }
            Value::Object(fields) => {
                for (name, child) in &node.children {
                    if let Some(value) = fields.get(&**name) {
                        self.walk(*child, value, found);
                    }
                }
            }
            Value::Array(items) if items.len() < node.children.len() => {
                for (at, value) in items.iter().enumerate() {
                    if let Some(child) = node.children.get(at.to_string().as_str()) {
                        self.walk(*child, value, found);
                    }
                }
            }
            Value::Array(items) => {
                for (name, child) in &node.children {
                    if let Some(value) = position(name).and_then(|at| items.get(at)) {
                        self.walk(*child, value, found);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_where_the_plain_way_leads() {
        let data = json!({"a": {"b": [{"c": 1}, 2], "d": null}, "0": [5, 6, 7]});
        let hasher = ValueHasher::new(1);
        let mut trie = PathTrie::new();
        let paths =
            ["a", "a.b.0.c", "a.b.1", "a.b.01", "a.b.7", "a.d", "a.d.e", "0.2", "0.1", "0.x", "0.3", "zz"];
        let kept: Vec<_> = paths
            .iter()
            .map(|path| FieldPath::parse(path).unwrap())
            .map(|path| (trie.keep(&path, &hasher), path))
            .collect();
        let values = trie.values(&data, 1);
        for (id, path) in &kept {
            assert_eq!(values.find(*id).map(|found| found.value), path.find(&data), "{path}");
        }
        for (id, _) in kept {
            trie.give_back(id);
        }
        assert!(trie.is_empty(), "every name is given back");
    }
}
