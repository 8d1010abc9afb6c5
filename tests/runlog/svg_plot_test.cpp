// SPDX-License-Identifier: MIT
// SVG charts by their content: well-formed, scaled right, nothing lost.
#include "runlog/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <stack>

#include "core/error.h"
#include "runlog/thinned_series.h"
#include "support/text.h"

namespace nibble::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// "" or what keeps `text` from being well-formed XML, as far as our files go.
std::string xml_problem(const std::string& text) {
  std::stack<std::string> open;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 && c != '\n') return "a control character";
    if (text[i] == '&') {
      const std::string entity = text.substr(i, text.find(';', i) - i + 1);
      const std::regex known("&(amp|lt|gt|quot);");
      if (!std::regex_match(entity, known)) return "entity " + entity;
    }
    if (text[i] == '>') return "a bare >";
    if (text[i] != '<') {
      ++i;
      continue;
    }
    const size_t end = text.find('>', i);
    if (end == std::string::npos) return "an open tag";
    const std::string tag = text.substr(i + 1, end - i - 1);
    const std::regex form("/?[a-z]+( [a-zA-Z:-]+=\"[^\"<&]*\")*/?");
    if (!std::regex_match(tag, form)) return "tag " + tag;
    const std::string name =
        tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      if (open.empty() || open.top() != name) return "a stray </" + name;
      open.pop();
    } else if (tag.back() != '/') {
      open.push(name);
    }
    i = end + 1;
  }
  return open.empty() ? "" : "not closed: " + open.top();
}

// The points of the last path, in pixels.
std::vector<std::pair<double, double>> points(const std::string& svg) {
  std::vector<std::pair<double, double>> list;
  const size_t from = svg.rfind(" d=\"");
  const std::string d = svg.substr(from, svg.find('"', from + 4) - from);
  const std::regex number("[ML]([0-9.-]+) ([0-9.-]+)");
  for (std::sregex_iterator it(d.begin(), d.end(), number), end; it != end; ++it) {
    list.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  }
  return list;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Plot simple(std::vector<double> y) {
  Plot p{.title = "T", .x_label = "step", .y_label = "loss"};
  PlotSeries s;
  for (size_t i = 0; i < y.size(); ++i) s.x.push_back(double(i));
  s.y = std::move(y);
  p.series = {s};
  return p;
}

TEST(SvgPlot, ALineFromCornerToCorner) {
  Plot p = simple({0, 1, 2});
  p.y_from_zero = true;
  const std::string svg = svg_text(p);
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\""));
  const auto line = points(svg);
  ASSERT_EQ(line.size(), 3u);
  EXPECT_EQ(line[0], std::pair(72.0, 348.0));  // left margin, bottom
  EXPECT_DOUBLE_EQ(line[1].first, (72 + 700) / 2.0);
  EXPECT_EQ(line[2].first, 700.0);
  EXPECT_GT(line[0].second, line[1].second);
  EXPECT_NEAR(line[1].second - line[2].second, line[0].second - line[1].second, 0.11);
  for (const char* part :
       {">T</text>", ">step</text>", ">loss</text>", ">0.5</text>", "prefers-color-scheme:dark"}) {
    EXPECT_TRUE(contains(svg, part)) << part;
  }
  EXPECT_FALSE(contains(svg, "script"));
  EXPECT_FALSE(contains(svg, "href"));
}

TEST(SvgPlot, LogarithmicScale) {
  Plot p = simple({100, 10, 1, 0, -5, 0.1});
  p.y_scale = PlotScale::logarithmic;
  const std::string svg = svg_text(p);
  EXPECT_EQ(xml_problem(svg), "");
  const auto line = points(svg);
  ASSERT_EQ(line.size(), 5u);  // zero and the negative one are left out; the last stands alone
  EXPECT_NEAR(line[1].second - line[0].second, line[2].second - line[1].second, 0.11);
  EXPECT_EQ(line[3], line[4]);
  for (const char* part : {">0.1<", ">1<", ">10<", ">100<"}) EXPECT_TRUE(contains(svg, part));
}

TEST(SvgPlot, GapsAndNothing) {
  const std::string gap = svg_text(simple({1, 2, kNan, 3, 4}));
  EXPECT_EQ(xml_problem(gap), "");
  const size_t from = gap.rfind(" d=\"");
  EXPECT_EQ(count(gap.substr(from), "M"), 2u);
  EXPECT_FALSE(contains(gap, "nan"));
  for (const auto& nothing : {std::vector<double>{}, {kNan}, {HUGE_VAL, -HUGE_VAL}}) {
    const std::string svg = svg_text(simple(nothing));
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_TRUE(contains(svg, "no data yet"));
  }
  for (const double constant : {0.0, 3.0, -2.0, 1e300}) {
    const std::string svg = svg_text(simple({constant, constant}));
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_EQ(points(svg).size(), 2u);
    EXPECT_FALSE(contains(svg, "nan") || contains(svg, "inf")) << svg;
  }
  EXPECT_EQ(points(svg_text(simple({7}))).size(), 2u);  // a dot
}

TEST(SvgPlot, AHundredThousandPointsKeepTheirPeak) {
  std::vector<double> y(100000, 1.0);
  y[54321] = 50;
  const std::string svg = svg_text(simple(y));
  EXPECT_LT(svg.size(), 40000u);
  double top = 1e9;
  for (const auto& [px, py] : points(svg)) top = std::min(top, py);
  EXPECT_LT(top, 80);  // near the upper edge, which is at 64
}

TEST(SvgPlot, LegendAndStyles) {
  Plot p = simple({1, 2});
  p.series.push_back({"smoothed <b>", {0, 1}, {1, 1.5}, LineStyle::strong, 1});
  p.series[0].name = "each";
  p.series[0].style = LineStyle::faint;
  const std::string svg = svg_text(p);
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_TRUE(contains(svg, ">each</text>"));
  EXPECT_TRUE(contains(svg, ">smoothed &lt;b&gt;</text>"));
  EXPECT_EQ(count(svg, "class=\"line c0 faint\""), 2u);  // in the legend and the curve
  EXPECT_EQ(count(svg, "class=\"line c1\""), 2u);
  p.series.back().y.pop_back();
  EXPECT_THROW(svg_text(p), InternalError);
}

TEST(SvgPlot, TextIsEscaped) {
  EXPECT_EQ(xml_escaped("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
  EXPECT_EQ(xml_escaped("我是 F# 之神 😀"), "我是 F# 之神 😀");
  EXPECT_EQ(xml_escaped("a\x01"
                        "b\n\x7f"),
            "a?b??");
  EXPECT_EQ(xml_escaped("\xff\xc3"), "??");            // no such byte; cut off
  EXPECT_EQ(xml_escaped("\xe0\x80\x80"), "???");       // longer than needed
  EXPECT_EQ(xml_escaped("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(xml_escaped("\xef\xbf\xbf"), "???");       // U+FFFF
  EXPECT_EQ(xml_escaped("\xf4\x90\x80\x80"), "????");  // beyond U+10FFFF
  Plot p = simple({1, 2});
  p.title = "a<script>&\x02\xff";
  EXPECT_EQ(xml_problem(svg_text(p)), "");
}

TEST(SvgPlot, Ticks) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(linear_ticks(3, 3, 5).size(), 0u);
  // One unit in the last place apart, and closer to zero than powers of ten go: these once had no
  // end.
  EXPECT_EQ(linear_ticks(14.463882684707642, std::nextafter(14.463882684707642, 15), 6).size(), 0u);
  EXPECT_LE(linear_ticks(0, 5e-324, 6).size(), 8u);
  for (const double scale : {1e-9, 1e-3, 1.0, 1e6}) {
    const auto t = linear_ticks(0.13 * scale, 0.87 * scale, 6);
    EXPECT_GE(t.size(), 3u);
    EXPECT_LE(t.size(), 8u);
    EXPECT_GE(t.front(), 0.13 * scale);
    EXPECT_LE(t.back(), 0.87 * scale);
  }
  EXPECT_EQ(log_ticks(0.5, 2000).size(), 4u);
  EXPECT_EQ(log_ticks(1, 10), (std::vector<double>{1, 2, 5, 10}));
  EXPECT_GE(log_ticks(2.1, 2.9).size(), 2u);  // no power of ten inside
  EXPECT_EQ(log_ticks(0, 1).size(), 0u);
  EXPECT_EQ(tick_label(0.002), "0.002");
  EXPECT_EQ(tick_label(1e-6), "1e-06");
  EXPECT_EQ(tick_label(20000), "20k");
  EXPECT_EQ(tick_label(2.5e6), "2.5M");
  EXPECT_EQ(tick_label(-0.0), "0");
}

TEST(ThinnedSeries, StaysSmallAndEven) {
  ThinnedSeries s(8);
  for (int i = 0; i < 1000; ++i) {
    s.add(i, 2 * i);
    ASSERT_LE(s.x().size(), 8u);
    ASSERT_EQ(s.x().front(), 0);
  }
  ASSERT_GE(s.x().size(), 4u);
  const double step = s.x()[1] - s.x()[0];
  for (size_t i = 0; i < s.x().size(); ++i) {
    EXPECT_EQ(s.x()[i], double(i) * step);
    EXPECT_EQ(s.y()[i], 2 * s.x()[i]);
  }
  EXPECT_GT(s.x().back() + step, 999 - step);
}

}  // namespace
}  // namespace nibble::test
