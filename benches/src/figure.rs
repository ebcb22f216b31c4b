//! The lines of the output that other programs read: `figure <name> <number> <unit>`.

pub fn figure(name: &str, value: f64, unit: &str) {
    if value.abs() >= 1000.0 {
        println!("figure {name} {value:.0} {unit}");
    } else {
        println!("figure {name} {value:.3} {unit}");
    }
}
