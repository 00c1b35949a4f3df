//! A list of events that stays sorted however late some of them arrive.

/// The most items in a chunk: what an insertion has to move.
const CHUNK_ITEMS: usize = 1024;

/// Numbers of events in the order of their positions. Adding at the end is the usual case and costs nothing.
#[derive(Debug, Default)]
pub(in crate::log) struct SortedList {
    /// None is empty; all of one chunk come before all of the next.
    chunks: Vec<Vec<u32>>,
}

impl SortedList {
    /// Puts `item` where it belongs; `comes_before` tells whether an item of the list comes before it.
    pub(in crate::log) fn insert(&mut self, item: u32, comes_before: impl Fn(u32) -> bool) {
        let late = self.chunks.last().is_some_and(|chunk| !last(chunk).is_none_or(&comes_before));
        if late {
            self.insert_late(item, comes_before);
            return;
        }
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_ITEMS => chunk.push(item),
            _ => self.chunks.push(vec![item]),
        }
    }

    fn insert_late(&mut self, item: u32, comes_before: impl Fn(u32) -> bool) {
        let at = self.chunks.partition_point(|chunk| last(chunk).is_none_or(&comes_before));
        let chunk = &mut self.chunks[at];
        let place = chunk.partition_point(|other| comes_before(*other));
        chunk.insert(place, item);
        if chunk.len() > CHUNK_ITEMS {
            let tail = chunk.split_off(CHUNK_ITEMS / 2);
            self.chunks.insert(at + 1, tail);
        }
    }

    /// The items from the first one that is not below.
    pub(in crate::log) fn ascending(&self, is_below: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let at = self.chunks.partition_point(|chunk| last(chunk).is_none_or(&is_below));
        let skipped = self.chunks.get(at).map_or(0, |chunk| chunk.partition_point(|item| is_below(*item)));
        self.chunks[at..].iter().flatten().copied().skip(skipped)
    }

    /// The items from the last one that is not above, backwards.
    pub(in crate::log) fn descending(&self, is_above: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let end = self.chunks.partition_point(|chunk| !chunk.first().is_some_and(|item| is_above(*item)));
        let kept = match end.checked_sub(1) {
            Some(at) => self.chunks[at].partition_point(|item| !is_above(*item)),
            None => 0,
        };
        let (rest, last) = match end.checked_sub(1) {
            Some(at) => (&self.chunks[..at], &self.chunks[at][..kept]),
            None => (&self.chunks[..0], &[][..]),
        };
        last.iter().rev().chain(rest.iter().rev().flat_map(|chunk| chunk.iter().rev())).copied()
    }

    /// All items in order.
    pub(in crate::log) fn iter(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().flatten().copied()
    }

    pub(in crate::log) fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }
}

fn last(chunk: &[u32]) -> Option<u32> {
    chunk.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below 1 << 20 in a fixed disorder.
    fn disorder(count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(|n| n.wrapping_mul(2_654_435_761) >> 12)
    }

    #[test]
    fn stays_sorted_whatever_the_order_of_arrival() {
        let orders: [Vec<u32>; 3] =
            [(0..5_000).collect(), (0..5_000).rev().collect(), disorder(5_000).collect()];
        for mut items in orders {
            let mut list = SortedList::default();
            for item in &items {
                list.insert(*item, |other| other < *item);
            }
            items.sort_unstable();
            assert!(list.iter().eq(items.iter().copied()));
            assert_eq!(list.len(), items.len());
            for edge in [0, 1, items[0], items[1_023], items[1_024], items[4_999], u32::MAX] {
                let expected: Vec<u32> = items.iter().copied().filter(|item| *item >= edge).collect();
                assert!(list.ascending(|item| item < edge).eq(expected), "from {edge}");
                let expected: Vec<u32> = items.iter().rev().copied().filter(|item| *item <= edge).collect();
                assert!(list.descending(|item| item > edge).eq(expected), "down from {edge}");
            }
        }
    }

    #[test]
    fn an_empty_list_has_nothing() {
        let list = SortedList::default();
        assert_eq!(list.ascending(|_| false).count() + list.descending(|_| false).count(), 0);
    }
}
