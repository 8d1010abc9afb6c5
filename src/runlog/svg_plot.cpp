// SPDX-License-Identifier: MIT
#include "runlog/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace nibble {
namespace {

constexpr int kLeft = 72, kRight = 20, kTop = 64, kBottom = 52;  // around the drawing
constexpr int kColours = 8;

// Colours that people with colour-blindness tell apart, in a lighter set for dark pages.
constexpr const char* kStyle =
    R"(svg text{font-family:system-ui,sans-serif;font-size:12px;fill:#52525b}
svg .title{font-size:15px;font-weight:600;fill:#18181b}
.page{fill:#ffffff}.grid{stroke:#e4e4e7;stroke-width:1}.axis{stroke:#a1a1aa;stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.faint{stroke-width:1;opacity:0.4}.dashed{stroke-width:1.5;stroke-dasharray:5 4}
.c0{stroke:#1d6fb8}.c1{stroke:#c2570c}.c2{stroke:#15803d}.c3{stroke:#9333ea}
.c4{stroke:#be123c}.c5{stroke:#0f766e}.c6{stroke:#a16207}.c7{stroke:#4b5563}
@media (prefers-color-scheme:dark){svg text{fill:#a1a1aa}svg .title{fill:#f4f4f5}
.page{fill:#18181b}.grid{stroke:#3f3f46}.axis{stroke:#71717a}
.c0{stroke:#60a5fa}.c1{stroke:#fb923c}.c2{stroke:#4ade80}.c3{stroke:#c084fc}
.c4{stroke:#fb7185}.c5{stroke:#2dd4bf}.c6{stroke:#facc15}.c7{stroke:#9ca3af}}
)";

const char* style_class(LineStyle style) {
  switch (style) {
    case LineStyle::faint: return " faint";
    case LineStyle::dashed: return " dashed";
    case LineStyle::strong: return "";
  }
  return "";
}

struct Interval {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
};

bool drawable(const PlotSeries& s, size_t i, PlotScale scale) {
  return std::isfinite(s.x[i]) && std::isfinite(s.y[i]) &&
         (scale == PlotScale::linear || s.y[i] > 0);
}

// Bytes of the UTF-8 sequence at the start of `s`, which is not empty; 0: not a valid one.
size_t utf8_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = at(0);
  const size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
  if (n > s.size()) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than needed, surrogates, beyond the last code point; U+FFFE and U+FFFF are not XML.
  const bool bad = (c == 0xe0 && at(1) < 0xa0) || (c == 0xed && at(1) > 0x9f) ||
                   (c == 0xf0 && at(1) < 0x90) || (c == 0xf4 && at(1) > 0x8f) ||
                   (c == 0xef && at(1) == 0xbf && at(2) >= 0xbe);
  return bad ? 0 : n;
}

// One axis: values to pixels.
struct Axis {
  Interval range;
  PlotScale scale = PlotScale::linear;
  double first_pixel = 0, last_pixel = 1;

  double pixel(double v) const {
    const auto f = [&](double x) { return scale == PlotScale::logarithmic ? std::log10(x) : x; };
    const double share = (f(v) - f(range.low)) / (f(range.high) - f(range.low));
    return first_pixel + share * (last_pixel - first_pixel);
  }
};

// A constant gets room around it, everything else a little.
void widen(Interval& r, PlotScale scale) {
  if (scale == PlotScale::logarithmic) {
    const double factor = r.low == r.high ? 2 : std::pow(r.high / r.low, 0.03);
    r = {r.low / factor, r.high * factor};
    return;
  }
  const double room =
      r.low == r.high ? std::max(std::abs(r.low) * 0.1, 1e-9) : (r.high - r.low) * 0.04;
  r = {r.low - room, r.high + room};
}

std::string text_element(double x, double y, const char* attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     xml_escaped(text));
}

// Lowest and highest value of each pixel column: no peak is lost, however long the run.
std::string path_of(const PlotSeries& s, const Axis& x_axis, const Axis& y_axis) {
  std::string path;
  const char* command = "M";
  const auto point = [&](double x, double y) {
    path += fmt::format("{}{:.1f} {:.1f}", command, x_axis.pixel(x), y_axis.pixel(y));
    command = "L";
  };
  size_t i = 0;
  while (i < s.x.size()) {
    if (!drawable(s, i, y_axis.scale)) {
      command = "M";
      ++i;
      continue;
    }
    size_t low = i, high = i, end = i + 1;
    const double column = std::floor(x_axis.pixel(s.x[i]));
    while (end < s.x.size() && drawable(s, end, y_axis.scale) &&
           std::floor(x_axis.pixel(s.x[end])) == column) {
      if (s.y[end] < s.y[low]) low = end;
      if (s.y[end] > s.y[high]) high = end;
      ++end;
    }
    if (end == i + 1 && *command == 'M' && (end == s.x.size() || !drawable(s, end, y_axis.scale))) {
      point(s.x[i], s.y[i]);  // alone: a line of no length, which round ends make a dot
    }
    point(s.x[std::min(low, high)], s.y[std::min(low, high)]);
    if (low != high) point(s.x[std::max(low, high)], s.y[std::max(low, high)]);
    i = end;
  }
  return path;
}

struct Legend {
  std::string elements;
  double height = 0;  // beyond the first row
};

Legend legend(const Plot& plot) {
  constexpr double kRow = 18;
  Legend out;
  double x = kLeft, y = 46;
  if (plot.series.size() < 2) return out;
  for (const PlotSeries& s : plot.series) {
    if (s.name.empty()) continue;
    const double width = 44 + 7.0 * double(s.name.size());
    if (x > kLeft && x + width > plot.width) {
      x = kLeft;
      y += kRow;
      out.height += kRow;
    }
    out.elements += fmt::format("<path class=\"line c{}{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n",
                                s.colour % kColours, style_class(s.style), x, y, x + 18, y);
    out.elements += text_element(x + 24, y + 4, "", s.name);
    x += width;
  }
  return out;
}

std::string grid(const Plot& plot, const Axis& x_axis, const Axis& y_axis) {
  std::string out;
  const double right = plot.width - kRight, bottom = plot.height - kBottom;
  const auto y_ticks = y_axis.scale == PlotScale::logarithmic
                           ? log_ticks(y_axis.range.low, y_axis.range.high)
                           : linear_ticks(y_axis.range.low, y_axis.range.high, 6);
  for (const double v : y_ticks) {
    const double y = y_axis.pixel(v);
    out +=
        fmt::format("<path class=\"grid\" d=\"M{} {:.1f}L{:.1f} {:.1f}\"/>\n", kLeft, y, right, y);
    out += text_element(kLeft - 8, y + 4, " text-anchor=\"end\"", tick_label(v));
  }
  for (const double v : linear_ticks(x_axis.range.low, x_axis.range.high, 8)) {
    out += text_element(x_axis.pixel(v), bottom + 18, " text-anchor=\"middle\"", tick_label(v));
  }
  out += fmt::format("<path class=\"axis\" d=\"M{} {:.1f}L{:.1f} {:.1f}\"/>\n", kLeft, bottom,
                     right, bottom);
  return out;
}

// Few enough for a page, and all that a screen's width can tell apart. Not-a-numbers are left out.
std::string point_data(const PlotSeries& s, const Axis& x_axis, PlotScale scale) {
  constexpr size_t kMost = 300;
  std::string out;
  const size_t stride = s.x.size() / kMost + 1;
  for (size_t i = 0; i < s.x.size(); i += stride) {
    const size_t at = i + stride < s.x.size() ? i : s.x.size() - 1;  // the last one is there
    if (!drawable(s, at, scale)) continue;
    out += fmt::format("{}{:.1f},{:g},{:.4g}", out.empty() ? "" : " ", x_axis.pixel(s.x[at]),
                       s.x[at], s.y[at]);
  }
  return out;
}

enum class PointData { left_out, included };

// All that is inside the <svg>.
std::string content(const Plot& plot, PointData data) {
  Axis x_axis, y_axis;
  y_axis.scale = plot.y_scale;
  for (const PlotSeries& s : plot.series) {
    if (s.x.size() != s.y.size()) throw_internal("plot series '{}': x and y differ", s.name);
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!drawable(s, i, plot.y_scale)) continue;
      x_axis.range.include(s.x[i]);
      y_axis.range.include(s.y[i]);
    }
  }
  std::string out =
      fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", plot.width, plot.height);
  out += text_element(kLeft, 26, " class=\"title\"", plot.title);
  const double middle_x = (kLeft + plot.width - kRight) / 2.0;
  const double middle_y = (kTop + plot.height - kBottom) / 2.0;
  if (y_axis.range.empty()) {
    return out + text_element(middle_x, middle_y, " text-anchor=\"middle\"", "no data yet");
  }
  if (x_axis.range.low == x_axis.range.high) widen(x_axis.range, PlotScale::linear);
  const bool from_zero = plot.y_from_zero && plot.y_scale == PlotScale::linear;
  if (from_zero) y_axis.range.include(0);
  if (plot.y_includes) y_axis.range.include(*plot.y_includes);
  widen(y_axis.range, plot.y_scale);
  if (from_zero) y_axis.range.low = std::max(y_axis.range.low, 0.0);
  x_axis.first_pixel = kLeft;
  x_axis.last_pixel = plot.width - kRight;
  y_axis.first_pixel = plot.height - kBottom;
  const Legend names = legend(plot);
  y_axis.last_pixel = kTop + names.height;
  out += names.elements + grid(plot, x_axis, y_axis);
  out += text_element(middle_x, plot.height - 12, " text-anchor=\"middle\"", plot.x_label);
  out += text_element(
      16, middle_y,
      fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1f})\"", middle_y).c_str(),
      plot.y_label);
  for (const PlotSeries& s : plot.series) {
    const std::string points =
        data == PointData::included
            ? fmt::format(" data-name=\"{}\" data-points=\"{}\"",
                          xml_escaped(s.name.empty() ? plot.y_label : s.name),
                          point_data(s, x_axis, plot.y_scale))
            : "";
    out += fmt::format("<path class=\"line c{}{}\"{} d=\"{}\"/>\n", s.colour % kColours,
                       style_class(s.style), points, path_of(s, x_axis, y_axis));
  }
  return out;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  if (!(high > low) || !std::isfinite(high - low) || wanted < 1) return ticks;
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double fraction = rough / power;
  const double step = power * (fraction <= 1 ? 1 : fraction <= 2 ? 2 : fraction <= 5 ? 5 : 10);
  // Values that differ in their last digits alone: their multiples of a step cannot be counted.
  constexpr double kCounted = 1e15;
  const double first = std::ceil(low / step);
  if (!(std::max(std::abs(first), std::abs(high / step)) < kCounted)) return ticks;
  for (double n = first; n * step <= high; ++n) ticks.push_back(n * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> powers, all;
  if (!(low > 0) || !(high >= low) || !std::isfinite(high)) return powers;
  for (double e = std::floor(std::log10(low)); e <= std::ceil(std::log10(high)); ++e) {
    for (const double m : {1.0, 2.0, 5.0}) {
      const double v = m * std::pow(10.0, e);
      if (v < low || v > high) continue;
      all.push_back(v);
      if (m == 1.0) powers.push_back(v);
    }
  }
  if (powers.size() >= 3) return powers;
  return all.size() >= 2 ? all : linear_ticks(low, high, 5);
}

std::string tick_label(double value) {
  const double a = std::abs(value);
  if (a >= 1e4 && a < 1e6) return fmt::format("{:g}k", value / 1e3);
  if (a >= 1e6 && a < 1e9) return fmt::format("{:g}M", value / 1e6);
  return fmt::format("{:.6g}", value == 0 ? 0.0 : value);  // no "-0"
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char c = text[0];
    const size_t n = utf8_length(text);
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (n == 0 || control) {
      out += '?';
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string svg_style() { return kStyle; }

std::string svg_text(const Plot& plot) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" "
      "role=\"img\">\n<title>{2}</title>\n<style>\n{3}</style>\n{4}</svg>\n",
      plot.width, plot.height, xml_escaped(plot.title), kStyle, content(plot, PointData::left_out));
}

std::string svg_element(const Plot& plot) {
  return fmt::format("<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n{3}</svg>\n",
                     plot.width, plot.height, xml_escaped(plot.title),
                     content(plot, PointData::included));
}

}  // namespace nibble
