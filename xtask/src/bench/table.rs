//! The table: Markdown that is also readable in a terminal.

/// One line of the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) figure: String,
    pub(super) measured: String,
    /// Empty where nothing was promised.
    pub(super) to_reach: String,
    pub(super) verdict: String,
}

impl Row {
    fn cells(&self) -> [&str; 4] {
        [&self.figure, &self.measured, &self.to_reach, &self.verdict]
    }
}

pub(super) fn render(rows: &[Row]) -> String {
    let head = ["figure", "measured", "to reach", "verdict"];
    let mut width = head.map(str::len);
    for row in rows {
        for (width, cell) in width.iter_mut().zip(row.cells()) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; 4]| {
        let [figure, measured, to_reach, verdict] = cells;
        let [a, b, c, d] = width;
        format!("| {figure:<a$} | {measured:>b$} | {to_reach:>c$} | {verdict:<d$} |\n")
    };
    let [a, b, c, d] = width.map(|w| "-".repeat(w));
    let mut table = line(head);
    table.push_str(&format!("| {a} | {b}: | {c}: | {d} |\n").replace("-: |", ": |"));
    table.extend(rows.iter().map(|row| line(row.cells())));
    table
}

/// A number as people read it: groups of three, decimals only where they matter.
pub(super) fn grouped(number: f64) -> String {
    if number.abs() < 100.0 && number.fract() != 0.0 {
        return format!("{number:.2}");
    }
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::{Row, grouped, render};

    #[test]
    fn numbers_are_readable() {
        for (number, text) in [
            (0.75, "0.75"),
            (12.0, "12"),
            (999.6, "1,000"),
            (45_666.97, "45,667"),
            (1_000_000.0, "1,000,000"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let row = Row { figure: "a".into(), measured: "1,000 /s".into(), ..Row::default() };
        let table = render(&[row]);
        let lengths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths, [lengths[0]; 3], "{table}");
        assert!(table.contains("| a      | 1,000 /s |"), "{table}");
    }
}
