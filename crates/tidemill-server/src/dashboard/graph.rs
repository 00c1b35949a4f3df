//! Where the tasks of a job stand in a picture: layers from left to right, edges that seldom cross.
//!
//! Pure: from tasks and their parents to places. A job with too many tasks to look at is drawn as groups: the tasks of
//! one name in one layer are one node.

use std::collections::{BTreeMap, HashMap};

/// A job with more tasks is drawn as groups.
pub(super) const TASKS_DRAWN_MAX: usize = 300;
/// So is one with more edges.
pub(super) const EDGES_DRAWN_MAX: usize = 2_000;
/// Groups of one layer; the smallest others are one.
const GROUPS_PER_LAYER_MAX: usize = 12;
/// Layers of a picture of groups; longer jobs have several layers in one.
const LAYERS_DRAWN_MAX: usize = 48;
/// How often the order within the layers is improved.
const SWEEPS: usize = 6;

/// A task as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// Indexes of the tasks it depends on.
    pub(super) parents: Vec<usize>,
    /// The place of its state in [`STATES`].
    pub(super) state: usize,
}

/// The states of tasks, in the order in which they are shown.
pub(super) const STATES: [&str; 6] = ["completed", "processing", "pending", "waiting", "parked", "failed"];

/// A place in the picture: layer and row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) layer: usize,
    pub(super) row: usize,
}

/// Tasks of one name in one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) layer: usize,
    /// How many tasks are in each of [`STATES`].
    pub(super) counts: [u64; STATES.len()],
    /// The only task in it, if there is one.
    pub(super) only: Option<usize>,
}

impl Group {
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The state that tells most: what failed, then what is being done.
    pub(super) fn state(&self) -> &'static str {
        let [completed, processing, pending, waiting, parked, failed] = self.counts;
        match () {
            () if failed > 0 => "failed",
            () if parked > 0 => "parked",
            () if processing > 0 => "processing",
            () if pending > 0 => "pending",
            () if waiting == 0 && completed > 0 => "completed",
            () => "waiting",
        }
    }
}

/// The longest way from a root to each node. A cycle, which no job has, would be left at 0.
pub(super) fn layers(nodes: &[Node]) -> Vec<usize> {
    let mut children = vec![Vec::new(); nodes.len()];
    let mut missing: Vec<usize> = vec![0; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        for parent in node.parents.iter().copied().filter(|parent| *parent < nodes.len()) {
            children[parent].push(at);
            missing[at] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|at| missing[*at] == 0).collect();
    let mut layers = vec![0; nodes.len()];
    while let Some(at) = ready.pop() {
        for child in std::mem::take(&mut children[at]) {
            layers[child] = layers[child].max(layers[at] + 1);
            missing[child] -= 1;
            if missing[child] == 0 {
                ready.push(child);
            }
        }
    }
    layers
}

/// A place for each node: by layer, then so that each stands near what it is tied to.
pub(super) fn places(layers: &[usize], edges: &[(usize, usize)]) -> Vec<Place> {
    let depth = layers.iter().max().map_or(0, |deepest| deepest + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); depth];
    for (at, layer) in layers.iter().enumerate() {
        rows[*layer].push(at);
    }
    let mut near: Vec<[Vec<usize>; 2]> = vec![[Vec::new(), Vec::new()]; layers.len()];
    for (from, to) in edges {
        near[*to][0].push(*from);
        near[*from][1].push(*to);
    }
    let mut position = vec![0; layers.len()];
    let settle = |row: &[usize], position: &mut Vec<usize>| {
        for (at, node) in row.iter().enumerate() {
            position[*node] = at;
        }
    };
    for row in &rows {
        settle(row, &mut position);
    }
    for sweep in 0..SWEEPS {
        let side = sweep % 2;
        let order: Vec<usize> = if side == 0 { (0..depth).collect() } else { (0..depth).rev().collect() };
        for layer in order {
            let mut keyed: Vec<(u64, usize, usize)> = rows[layer]
                .iter()
                .map(|node| {
                    let tied = &near[*node][side];
                    let sum: usize = tied.iter().map(|other| position[*other] * 1_000).sum();
                    let mean = sum.checked_div(tied.len()).unwrap_or(position[*node] * 1_000);
                    (mean as u64, position[*node], *node)
                })
                .collect();
            keyed.sort_unstable();
            rows[layer] = keyed.into_iter().map(|(_, _, node)| node).collect();
            settle(&rows[layer], &mut position);
        }
    }
    layers.iter().enumerate().map(|(at, layer)| Place { layer: *layer, row: position[at] }).collect()
}

/// The groups of a large job, and how many dependencies lead from one to another.
pub(super) fn groups(nodes: &[Node]) -> (Vec<Group>, BTreeMap<(usize, usize), u64>) {
    let layers = layers(nodes);
    let depth = layers.iter().max().map_or(0, |deepest| deepest + 1);
    let per_band = depth.div_ceil(LAYERS_DRAWN_MAX).max(1);
    let mut members: BTreeMap<(usize, &str), Vec<usize>> = BTreeMap::new();
    let names: Vec<String> = nodes.iter().map(|node| without_numbers(&node.name)).collect();
    for (at, name) in names.iter().enumerate() {
        members.entry((layers[at] / per_band, name.as_str())).or_default().push(at);
    }
    let mut of_layer: BTreeMap<usize, Vec<(String, Vec<usize>)>> = BTreeMap::new();
    for ((layer, name), tasks) in members {
        of_layer.entry(layer).or_default().push((name.to_owned(), tasks));
    }
    let mut found = Vec::new();
    let mut group_of = vec![0; nodes.len()];
    for (layer, mut own) in of_layer {
        own.sort_by(|one, other| other.1.len().cmp(&one.1.len()).then_with(|| one.0.cmp(&other.0)));
        if own.len() > GROUPS_PER_LAYER_MAX {
            let rest = own.split_off(GROUPS_PER_LAYER_MAX - 1);
            let name = format!("{} other names", rest.len());
            own.push((name, rest.into_iter().flat_map(|(_, tasks)| tasks).collect()));
        }
        for (mut name, tasks) in own {
            if let [only] = tasks[..] {
                name.clone_from(&nodes[only].name);
            }
            let mut counts = [0; STATES.len()];
            for task in &tasks {
                counts[nodes[*task].state.min(STATES.len() - 1)] += 1;
                group_of[*task] = found.len();
            }
            let only = if let [task] = tasks[..] { Some(task) } else { None };
            found.push(Group { name, layer, counts, only });
        }
    }
    let mut edges = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        for parent in node.parents.iter().copied().filter(|parent| *parent < nodes.len()) {
            let (from, to) = (group_of[parent], group_of[at]);
            if from != to {
                *edges.entry((from, to)).or_default() += 1;
            }
        }
    }
    (found, edges)
}

/// A name with its numbers left open: tasks without a definition are often named by a running number.
fn without_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// The index of each task by its id.
pub(super) fn index<'a>(ids: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    ids.enumerate().map(|(at, id)| (id, at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(parents: &[&[usize]]) -> Vec<Node> {
        let node = |parents: &&[usize]| Node { name: "work".to_owned(), parents: parents.to_vec(), state: 3 };
        parents.iter().map(node).collect()
    }

    #[test]
    fn a_task_stands_behind_all_it_waits_for_in_whatever_order_they_come() {
        let sample = nodes(&[&[1, 2], &[3], &[], &[]]);
        assert_eq!(layers(&sample), [2, 1, 0, 0]);
        assert_eq!(layers(&[]), [0; 0]);
    }

    #[test]
    fn places_of_a_layer_differ_and_lines_do_not_cross_without_need() {
        // Two chains, handed in crosswise.
        let sample = nodes(&[&[], &[], &[1], &[0]]);
        let layers = layers(&sample);
        let places = places(&layers, &[(1, 2), (0, 3)]);
        assert_eq!(places[0].layer, 0);
        assert_ne!(places[0].row, places[1].row);
        assert_eq!(places[0].row < places[1].row, places[3].row < places[2].row);
    }

    #[test]
    fn ten_thousand_tasks_make_a_handful_of_groups() {
        let mut sample = nodes(&[&[]]);
        let part = |at| Node { name: "part".to_owned(), parents: vec![0], state: at % STATES.len() };
        sample.extend((0..9_998).map(part));
        sample.push(Node { name: "join".to_owned(), parents: (1..9_999).collect(), state: 3 });
        let (groups, edges) = groups(&sample);
        assert_eq!(groups.len(), 3);
        assert_eq!((groups[1].total(), groups[1].state()), (9_998, "failed"));
        assert_eq!((groups[0].only, groups[2].only), (Some(0), Some(9_999)));
        assert_eq!(edges[&(0, 1)], 9_998);
        let chain: Vec<_> = (0..10_000_usize)
            .map(|at| Node {
                name: format!("step-{at}"),
                parents: at.checked_sub(1).into_iter().collect(),
                state: 0,
            })
            .collect();
        let (groups, edges) = super::groups(&chain);
        assert!(groups.len() <= LAYERS_DRAWN_MAX && edges.len() == groups.len() - 1, "{}", groups.len());
        assert_eq!(groups.iter().map(Group::total).sum::<u64>(), 10_000);
    }
}
