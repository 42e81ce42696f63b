//! The plots: one panel a workload, a bar a side with its least and most, in one SVG.

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::figure::Metric;
use crate::report::Report;
use crate::spread::Spread;

const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (420, 190);
const MARGIN: i32 = 12;
const TITLE_HEIGHT: i32 = 40;
const LABEL_WIDTH: i32 = 160;
const VALUE_WIDTH: i32 = 70;
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(127, 127, 127), RGBColor(214, 95, 60), RGBColor(90, 160, 90)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A bar: what it is of, its side's number, its numbers.
struct Bar {
    label: String,
    side: usize,
    spread: Spread,
}

/// Writes `path`.
pub fn draw(report: &Report<'_>, path: &Path) -> io::Result<()> {
    let panels: Vec<(String, Vec<Bar>)> = panels(report);
    let rows = panels.len().div_ceil(COLUMNS).max(1);
    let size = (PANEL.0 * COLUMNS as u32, PANEL.1 * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    drawn(root.fill(&WHITE))?;
    for ((title, bars), area) in panels.iter().zip(root.split_evenly((rows, COLUMNS))) {
        panel(&area, title, bars)?;
    }
    drawn(root.present())
}

fn drawn<T, E: std::fmt::Display>(result: Result<T, E>) -> io::Result<T> {
    result.map_err(|error| io::Error::other(format!("plot: {error}")))
}

fn panels(report: &Report<'_>) -> Vec<(String, Vec<Bar>)> {
    let mut panels = Vec::new();
    for (number, workload) in report.workloads().iter().enumerate() {
        // One quantile says little.
        let metrics: &[Metric] = match workload.headline {
            Metric::P99 => &[Metric::P50, Metric::P99, Metric::P999],
            _ => std::slice::from_ref(&workload.headline),
        };
        let mut bars = Vec::new();
        for (side, of) in workload.sides.iter().enumerate() {
            for metric in metrics {
                let Some(spread) = report.spread(number, &of.label, *metric) else { continue };
                let label = if metrics.len() == 1 {
                    of.label.clone()
                } else {
                    format!("{}, {}", of.label, metric.heading().trim_end_matches(" ms"))
                };
                bars.push(Bar { label, side, spread });
            }
        }
        if !bars.is_empty() {
            let unit = if metrics.len() == 1 { metrics[0].heading() } else { "ms" };
            panels.push((format!("{} ({unit})", workload.name), bars));
        }
    }
    panels
}

fn panel(area: &Area<'_>, title: &str, bars: &[Bar]) -> io::Result<()> {
    let (width, height) = area.dim_in_pixel();
    let (width, height) = (width as i32, height as i32);
    let font = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    drawn(area.draw(&Text::new(title.to_string(), (MARGIN, MARGIN), font(14))))?;
    let most = bars.iter().map(|bar| bar.spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let step = (height - TITLE_HEIGHT - MARGIN) / bars.len().max(1) as i32;
    let step = step.min(36);
    let from = MARGIN + LABEL_WIDTH;
    let x = |value: f64| from + (value.max(0.0) / most * f64::from(width - from - VALUE_WIDTH - MARGIN)) as i32;
    for (number, bar) in bars.iter().enumerate() {
        let top = TITLE_HEIGHT + number as i32 * step;
        let (bottom, middle) = (top + step * 7 / 10, top + step * 7 / 20);
        let colour = COLOURS[bar.side % COLOURS.len()];
        let label_size = (step * 6 / 10).clamp(7, 12);
        drawn(area.draw(&Text::new(bar.label.clone(), (MARGIN, middle - label_size / 2), font(label_size))))?;
        let rectangle = [(from, top), (x(bar.spread.median), bottom)];
        drawn(area.draw(&Rectangle::new(rectangle, colour.filled())))?;
        let whisker = vec![(x(bar.spread.least), middle), (x(bar.spread.most), middle)];
        drawn(area.draw(&PathElement::new(whisker, BLACK.stroke_width(1))))?;
        let value =
            Text::new(short(bar.spread.median), (x(bar.spread.most) + 6, middle - label_size / 2), font(label_size));
        drawn(area.draw(&value))?;
    }
    Ok(())
}

/// Three digits are enough to read.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
