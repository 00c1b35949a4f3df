//! Figures as text.

/// Two figures that count.
pub fn round(value: f64) -> String {
    if value <= 0.0 {
        return "0".to_owned();
    }
    let step = 10f64.powf(value.log10().floor() - 1.0);
    thousands(((value / step).round() * step) as u64)
}

pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
