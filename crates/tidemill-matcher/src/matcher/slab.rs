//! Values under small numbers that are used again.

/// The number of a value in a [`Slab`].
pub(super) type Slot = u32;

#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.entries[slot as usize] = Some(value);
            return slot;
        }
        let slot = Slot::try_from(self.entries.len()).expect("memory ends before the numbers do");
        self.entries.push(Some(value));
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> T {
        let value = self.entries[slot as usize].take().expect(HELD);
        self.free.push(slot);
        if self.free.len() == self.entries.len() {
            *self = Self::new();
        }
        value
    }
}

const HELD: &str = "who holds a slot is the only one to give it back";

impl<T> std::ops::Index<Slot> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.entries[slot as usize].as_ref().expect(HELD)
    }
}

impl<T> std::ops::IndexMut<Slot> for Slab<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.entries[slot as usize].as_mut().expect(HELD)
    }
}
