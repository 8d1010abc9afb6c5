// SPDX-License-Identifier: MIT
// Line charts as SVG text: small, readable on light and dark pages, no scripts.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

enum class LineStyle { strong, faint, dashed };  // faint: the raw values behind a smoothed curve
enum class PlotScale { linear, logarithmic };

struct PlotSeries {
  std::string name;          // in the legend; empty: not named there
  std::vector<double> x, y;  // as many of each, x ascending; a y that is not finite breaks the line
  LineStyle style = LineStyle::strong;
  int colour = 0;  // of the palette; raw and smoothed values of one thing share one
};

struct Plot {
  std::string title = {}, x_label = {}, y_label = {};
  PlotScale y_scale = PlotScale::linear;  // logarithmic leaves out values that are not positive
  bool y_from_zero = false;               // linear only: sizes and speeds are read against zero
  std::optional<double> y_includes = {};  // a value the axis reaches in any case
  std::vector<PlotSeries> series = {};
  int width = 720, height = 400;
};

std::string svg_text(const Plot& plot);  // a file of its own
// A part of an HTML page that has svg_style() once. The points are there as data, too, for a script
// that shows them: data-points="pixel,x,y pixel,x,y ..." of each line.
std::string svg_element(const Plot& plot);
std::string svg_style();

// Round numbers that divide [low, high], about `wanted` of them, all inside.
std::vector<double> linear_ticks(double low, double high, int wanted);
// Powers of ten in [low, high], with 2 and 5 between them where there would be fewer than three.
std::vector<double> log_ticks(double low, double high);
std::string tick_label(double value);  // "0.002", "1e-06", "20k"
// Text that is safe in XML, whatever bytes it holds: control characters and broken UTF-8 become ?.
std::string xml_escaped(std::string_view text);

}  // namespace nibble
