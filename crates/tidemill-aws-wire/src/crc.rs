//! Cyclic redundancy checks that no crate of the tree has: CRC-32C and CRC-64/NVME.
//!
//! Both are reflected, begin with all ones and end inverted, so one routine serves them: a register of 64 bits, of which
//! the smaller one uses the lower half. Eight bytes are taken at a step, with a table for each of them.

/// What the eight tables hold for one polynomial.
type Tables = [[u64; 256]; 8];

/// The Castagnoli polynomial, its bits reversed.
const CRC32C: u64 = 0x82f6_3b78;
/// The polynomial of NVM Express, its bits reversed.
const CRC64_NVME: u64 = 0x9a6c_9329_ac4b_c9b5;

static CRC32C_TABLES: Tables = tables(CRC32C);
static CRC64_NVME_TABLES: Tables = tables(CRC64_NVME);

/// The state of one check.
#[derive(Debug, Clone)]
pub(crate) struct Crc {
    tables: &'static Tables,
    register: u64,
}

impl Crc {
    pub(crate) fn crc32c() -> Self {
        Self { tables: &CRC32C_TABLES, register: u64::from(u32::MAX) }
    }

    pub(crate) fn crc64_nvme() -> Self {
        Self { tables: &CRC64_NVME_TABLES, register: u64::MAX }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let mixed = (self.register ^ u64::from_le_bytes(*eight)).to_le_bytes();
            self.register = mixed
                .iter()
                .zip(self.tables.iter().rev())
                .fold(0, |register, (byte, table)| register ^ table[usize::from(*byte)]);
        }
        for byte in rest {
            let [lowest, ..] = self.register.to_le_bytes();
            self.register = self.tables[0][usize::from(lowest ^ byte)] ^ (self.register >> 8);
        }
    }

    /// All bits of the register inverted. Of CRC-32C the lower 32 count.
    pub(crate) fn finish(&self) -> u64 {
        !self.register
    }
}

const fn tables(polynomial: u64) -> Tables {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut entry = index as u64;
        let mut bit = 0;
        while bit < 8 {
            entry = if entry & 1 == 1 { (entry >> 1) ^ polynomial } else { entry >> 1 };
            bit += 1;
        }
        tables[0][index] = entry;
        index += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut index = 0;
        while index < 256 {
            let before: u64 = tables[table - 1][index];
            tables[table][index] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            index += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mut crc: Crc, bytes: &[u8]) -> u64 {
        crc.update(bytes);
        crc.finish()
    }

    #[test]
    fn the_check_values_of_the_catalogue_come_out() {
        let digits = b"123456789";
        assert_eq!(of(Crc::crc32c(), digits) & 0xffff_ffff, 0xe306_9283);
        assert_eq!(of(Crc::crc64_nvme(), digits), 0xae8b_1486_0a79_9888);
        // From RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and counted up.
        for (bytes, expected) in [
            ([0; 32], 0x8a91_36aa),
            ([0xff; 32], 0x62a8_ab43),
            (std::array::from_fn(|index| u8::try_from(index).unwrap()), 0x46dd_794e),
        ] {
            assert_eq!(of(Crc::crc32c(), &bytes) & 0xffff_ffff, expected);
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut() {
        let bytes: Vec<u8> = (0..100_u8).collect();
        for cut in 0..bytes.len() {
            for crc in [Crc::crc32c(), Crc::crc64_nvme()] {
                let mut in_two = crc.clone();
                in_two.update(&bytes[..cut]);
                in_two.update(&bytes[cut..]);
                assert_eq!(in_two.finish(), of(crc, &bytes), "cut at {cut}");
            }
        }
    }
}
