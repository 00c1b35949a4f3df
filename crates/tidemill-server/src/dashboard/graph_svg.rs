//! A job's graph as a picture.

use maud::{Markup, html};

use super::chart::share;
use super::graph::{EDGES_DRAWN_MAX, Group, Node, Place, STATES, TASKS_DRAWN_MAX, groups, layers, places};
use super::screen::fingerprint;
use super::widgets::{counted, number};

const NODE_WIDTH: usize = 168;
const NODE_HEIGHT: usize = 34;
const GROUP_HEIGHT: usize = 46;
const GAP_X: usize = 56;
const GAP_Y: usize = 12;
const MARGIN: usize = 16;
/// The characters of a name that fit into a node.
const NAME_CHARS_MAX: usize = 20;

/// A task in the picture: its id, what it links to, and where it stands.
pub(super) struct Task {
    pub(super) id: String,
    pub(super) link: String,
    pub(super) node: Node,
}

/// The picture, a number for its shape, and the states of its nodes.
pub(super) struct Picture {
    pub(super) html: Markup,
    pub(super) shape: u64,
    pub(super) marks: Vec<(String, &'static str)>,
}

pub(super) fn draw(tasks: &[Task], job_address: &str) -> Picture {
    let edges: usize = tasks.iter().map(|task| task.node.parents.len()).sum();
    let is_large = tasks.len() > TASKS_DRAWN_MAX || edges > EDGES_DRAWN_MAX;
    if is_large { draw_groups(tasks, job_address) } else { draw_tasks(tasks) }
}

/// Where a node's upper left corner is. Layers stand centred, the tallest fills the height.
struct Grid {
    places: Vec<Place>,
    sizes: Vec<usize>,
    height: usize,
    node_height: usize,
}

impl Grid {
    fn new(places: Vec<Place>, node_height: usize) -> Self {
        let mut sizes = Vec::new();
        for place in &places {
            if sizes.len() <= place.layer {
                sizes.resize(place.layer + 1, 0);
            }
            sizes[place.layer] += 1;
        }
        let tallest = sizes.iter().copied().max().unwrap_or(0);
        let height = tallest * (node_height + GAP_Y) + 2 * MARGIN;
        Self { places, sizes, height, node_height }
    }

    fn corner(&self, at: usize) -> (usize, usize) {
        let Place { layer, row } = self.places[at];
        let own = self.sizes[layer] * (self.node_height + GAP_Y) - GAP_Y;
        let top = (self.height - own) / 2;
        (MARGIN + layer * (NODE_WIDTH + GAP_X), top + row * (self.node_height + GAP_Y))
    }

    fn width(&self) -> usize {
        self.sizes.len() * (NODE_WIDTH + GAP_X) - GAP_X.min(self.sizes.len() * GAP_X) + 2 * MARGIN
    }

    fn edge(&self, from: usize, to: usize) -> String {
        let ((from_x, from_y), (to_x, to_y)) = (self.corner(from), self.corner(to));
        let (x1, y1) = (from_x + NODE_WIDTH, from_y + self.node_height / 2);
        let (x2, y2) = (to_x, to_y + self.node_height / 2);
        let bend = (x2.saturating_sub(x1) / 2).clamp(24, 90);
        format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend))
    }
}

fn frame(grid: &Grid, about: &str, inner: &Markup) -> Markup {
    let (width, height) = (grid.width(), grid.height);
    html! {
        div class="graph" data-graph {
            div class="graph-tools" hidden {
                button type="button" data-zoom="in" aria-label="Zoom in" title="Zoom in" { "+" }
                button type="button" data-zoom="out" aria-label="Zoom out" title="Zoom out" { "−" }
                button type="button" data-zoom="fit" aria-label="Show all" title="Show all" { "⤢" }
            }
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label=(about) {
                defs {
                    marker id="arrow" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="6" markerHeight="6" orient="auto" {
                        path d="M0 0 6 3 0 6z" {}
                    }
                }
                (inner)
            }
        }
        ul class="legend" aria-label="Colours" {
            @for state in ["waiting", "pending", "processing", "completed", "parked", "failed"] {
                li { (super::widgets::state(state)) }
            }
        }
    }
}

fn draw_tasks(tasks: &[Task]) -> Picture {
    let nodes: Vec<Node> = tasks.iter().map(|task| task.node.clone()).collect();
    let edges: Vec<(usize, usize)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(to, node)| node.parents.iter().map(move |from| (*from, to)))
        .filter(|(from, _)| *from < tasks.len())
        .collect();
    let grid = Grid::new(places(&layers(&nodes), &edges), NODE_HEIGHT);
    let inner = html! {
        @for (from, to) in &edges { path class="edge" d=(grid.edge(*from, *to)) marker-end="url(#arrow)" {} }
        @for (at, task) in tasks.iter().enumerate() {
            @let (x, y) = grid.corner(at);
            a href=(task.link) id={ "n" (at) } class="node" data-state=(STATES[task.node.state]) {
                title { (task.id) ": " (task.node.name) }
                rect x=(x) y=(y) width=(NODE_WIDTH) height=(NODE_HEIGHT) rx="7" {}
                circle cx=(x + 15) cy=(y + NODE_HEIGHT / 2) r="4.5" {}
                text x=(x + 27) y=(y + NODE_HEIGHT / 2 + 4) { (shortened(&task.id)) }
            }
        }
    };
    let shape: Vec<_> = tasks.iter().map(|task| (&task.id, &task.node.name, &task.node.parents)).collect();
    Picture {
        html: frame(&grid, "The tasks of this job and what they wait for", &inner),
        shape: fingerprint(&shape),
        marks: tasks
            .iter()
            .enumerate()
            .map(|(at, task)| (format!("n{at}"), STATES[task.node.state]))
            .collect(),
    }
}

fn draw_groups(tasks: &[Task], job_address: &str) -> Picture {
    let nodes: Vec<Node> = tasks.iter().map(|task| task.node.clone()).collect();
    let (groups, weights) = groups(&nodes);
    let edges: Vec<(usize, usize)> = weights.keys().copied().collect();
    let layers: Vec<usize> = groups.iter().map(|group| group.layer).collect();
    let grid = Grid::new(places(&layers, &edges), GROUP_HEIGHT);
    let inner = html! {
        @for ((from, to), weight) in &weights {
            path class="edge" data-heavy=[(*weight > 50).then_some("yes")] d=(grid.edge(*from, *to)) marker-end="url(#arrow)" {
                title { (number(*weight)) " dependencies" }
            }
        }
        @for (at, group) in groups.iter().enumerate() {
            @let (x, y) = grid.corner(at);
            @let link = group.only.map_or_else(|| format!("{job_address}#tasks"), |task| tasks[task].link.clone());
            a href=(link) id={ "n" (at) } class="node group" data-state=(group.state()) {
                title { (group.name) ": " (describe_counts(group)) }
                rect x=(x) y=(y) width=(NODE_WIDTH) height=(GROUP_HEIGHT) rx="7" {}
                circle cx=(x + 15) cy=(y + 16) r="4.5" {}
                text x=(x + 27) y=(y + 20) { (shortened(&group.name)) }
                text class="count" x=(x + NODE_WIDTH - 10) y=(y + 20) text-anchor="end" { "×" (number(group.total())) }
                svg x=(x + 10) y=(y + 31) width=(NODE_WIDTH - 20) height="6" viewBox="0 0 1000 8" preserveAspectRatio="none" {
                    (share(&parts(group), &describe_counts(group)))
                }
            }
        }
    };
    let about =
        format!("{}, those of one name at one depth as one node", counted(tasks.len() as u64, "task"));
    let note = html! {
        p class="faint graph-note" {
            "Above " (TASKS_DRAWN_MAX) " tasks or " (number(EDGES_DRAWN_MAX as u64)) " edges, those of one name at one depth are drawn as one. The list below has each of them."
        }
    };
    let html = html! { (frame(&grid, &about, &inner)) (note) };
    // The counts are part of it, so it is sent whole when they change; it is small whatever the job is.
    Picture { shape: fingerprint(&html.0), html, marks: Vec::new() }
}

fn parts(group: &Group) -> Vec<(&'static str, u64)> {
    STATES.into_iter().zip(group.counts).collect()
}

fn describe_counts(group: &Group) -> String {
    let told = parts(group).into_iter().filter(|(_, count)| *count > 0);
    told.map(|(state, count)| format!("{} {state}", number(count))).collect::<Vec<_>>().join(", ")
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let head: String = name.chars().take(NAME_CHARS_MAX - 1).collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_very_many_edges_is_drawn_as_groups() {
        let job = |first: usize, second: usize| -> Vec<Task> {
            let parents = |at: usize| if at < first { Vec::new() } else { (0..first).collect() };
            let node = |at: usize| Node { name: "work".to_owned(), parents: parents(at), state: 3 };
            (0..first + second)
                .map(|at| Task { id: format!("t-{at}"), link: format!("/tasks/{at}"), node: node(at) })
                .collect()
        };
        let size = |tasks: &[Task]| draw(tasks, "/jobs/x").html.0.len();
        assert!(size(&job(150, 150)) < 20_000, "{}", size(&job(150, 150)));
        assert_eq!(draw(&job(40, 40), "/jobs/x").marks.len(), 80, "each task is drawn");
    }
}
