//! The figures of a report as one SVG: a bar a workload, with the limit as a line across it.

use std::fmt::Write as _;

use super::report::{Line, Report};

const WIDTH: f64 = 760.0;
const LABELS: f64 = 200.0;
const BAR: f64 = 22.0;
const GAP: f64 = 10.0;
const HEAD: f64 = 46.0;

/// The chart: milliseconds a step for decode workloads, thousand tokens a second for the others, each group to its own scale.
pub fn svg(report: &Report) -> String {
    let (decode, rest): (Vec<&Line>, Vec<&Line>) = report.lines.iter().partition(|line| line.step_ms.is_some());
    let groups = [
        (
            "milliseconds a decode step (the line is the memory limit)",
            bars(&decode, |line| (line.step_ms, line.limit_ms)),
        ),
        ("thousand tokens a second (the line is the limit)", bars(&rest, throughput)),
    ];
    let height: f64 = groups.iter().filter(|g| !g.1.is_empty()).map(|g| HEAD + g.1.len() as f64 * (BAR + GAP)).sum();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"22\" font-weight=\"bold\">{}</text>\n",
        height + 34.0,
        escaped(&format!("{} on {}", report.model, report.machine)),
    );
    let mut y = 30.0;
    for (title, bars) in groups.iter().filter(|group| !group.1.is_empty()) {
        y = group(&mut svg, y, title, bars);
    }
    svg.push_str("</svg>\n");
    svg
}

struct Bar {
    label: String,
    value: f64,
    limit: Option<f64>,
}

fn bars(lines: &[&Line], value: impl Fn(&Line) -> (Option<f64>, Option<f64>)) -> Vec<Bar> {
    let bar = |line: &&Line| {
        let (value, limit) = value(line);
        Bar { label: line.name.clone(), value: value.unwrap_or(0.0), limit }
    };
    lines.iter().map(bar).collect()
}

fn throughput(line: &Line) -> (Option<f64>, Option<f64>) {
    let limit = line.share_of_limit.filter(|share| *share > 0.0).map(|share| line.tokens_per_second / share / 1e3);
    (Some(line.tokens_per_second / 1e3), limit)
}

fn group(svg: &mut String, top: f64, title: &str, bars: &[Bar]) -> f64 {
    let largest = bars.iter().map(|bar| bar.value.max(bar.limit.unwrap_or(0.0))).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LABELS - 90.0) / largest;
    let _ = writeln!(svg, "<text x=\"10\" y=\"{:.0}\" fill=\"#444\">{}</text>", top + 24.0, escaped(title));
    let mut y = top + 34.0;
    for bar in bars {
        let (middle, end) = (y + BAR * 0.7, LABELS + bar.value * scale);
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{middle:.1}\">{}</text><rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"#4a7ab5\"/><text x=\"{:.1}\" y=\"{middle:.1}\">{:.2}</text>",
            escaped(&bar.label),
            bar.value * scale,
            end.max(LABELS + bar.limit.unwrap_or(0.0) * scale) + 6.0,
            bar.value,
        );
        if let Some(limit) = bar.limit {
            let x = LABELS + limit * scale;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#c33\" stroke-width=\"2\"/>",
                y - 3.0,
                y + BAR + 3.0
            );
        }
        y += BAR + GAP;
    }
    y + HEAD - 34.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
