#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "predict_report.h"

namespace k3pod {
namespace {

constexpr double kWidth = 960, kLabels = 210, kBars = 620, kRow = 22, kGap = 8;

constexpr const char* kSerial = "#3b6ea8";
constexpr const char* kOverlapped = "#7fb069";
constexpr const char* kWaiting = "#d1495b";
constexpr const char* kExchange = "#edae49";
constexpr const char* kSlack = "#dddddd";

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

struct Piece {
    double value;
    const char* colour;
    std::string what;
};

// Rows of stacked bars, from top to bottom.
class Bars {
  public:
    void title(std::string_view text) {
        y_ += kGap;
        line(kGap, y_ + 15, text, "font-weight=\"bold\"");
        y_ += kRow;
    }
    // `full` is the value of a bar over the whole width.
    void row(std::string_view label, const std::vector<Piece>& pieces, double full,
             std::string_view note) {
        line(kGap, y_ + 15, label, "");
        double x = kLabels;
        for (const Piece& piece : pieces) {
            const double width = full > 0 ? kBars * piece.value / full : 0;
            if (width < 0.05) continue;
            body_ += fmt::format(
                R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"><title>{}</title></rect>)"
                "\n",
                x, y_ + 2, width, kRow - 4, piece.colour, escaped(piece.what));
            x += width;
        }
        line(x + 6, y_ + 15, note, "fill=\"#555555\"");
        y_ += kRow;
    }
    void legend(const std::vector<std::pair<const char*, const char*>>& entries) {
        double x = kLabels;
        for (const auto& [colour, text] : entries) {
            body_ += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="12" height="12" fill="{}"/>)"
                                 "\n",
                                 x, y_ + 5, colour);
            line(x + 16, y_ + 15, text, "");
            x += 26 + 7.2 * static_cast<double>(std::string_view(text).size());
        }
        y_ += kRow;
    }
    std::string svg(std::string_view heading) const {
        return fmt::format(
            R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" viewBox="0 0 {0} {1:.0f}" font-family="sans-serif" font-size="13">)"
            "\n<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" "
            "fill=\"#ffffff\"/>\n{3}</svg>\n",
            kWidth, y_ + kGap, escaped(heading), body_);
    }

  private:
    void line(double x, double y, std::string_view text, std::string_view attributes) {
        if (text.empty()) return;
        body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                             escaped(text));
    }

    std::string body_;
    double y_ = 0;
};

Piece piece(double seconds, const char* colour, std::string_view what) {
    return {seconds, colour, fmt::format("{}: {:.2f} ms", what, seconds * 1e3)};
}

void draw_step(const PredictedStep& step, Bars& bars) {
    bars.title("One step on the station");
    bars.legend({{kSerial, "nothing beside it"},
                 {kOverlapped, "under the exchange"},
                 {kWaiting, "waiting for experts"}});
    const double moe_s = step.moe_front_s + step.moe_tail_s;
    bars.row("station",
             {piece(step.attention_s, kSerial, "attention"), piece(moe_s, kSerial, "MoE layers"),
              piece(step.dense_s + step.head_s + step.draft_s, kSerial, "dense, head, drafts"),
              piece(step.shared_s, kOverlapped, "shared experts"),
              piece(step.local_s, kOverlapped, "experts in main memory"),
              piece(step.wait_s, kWaiting, "waiting")},
             step.total_s, fmt::format("{:.1f} ms", step.total_s * 1e3));
}

void draw_holders(const PredictedStep& step, Bars& bars) {
    bars.title("Meanwhile, layer by layer");
    bars.legend({{kExchange, "exchange"}, {kOverlapped, "reading experts"}, {kSlack, "slack"}});
    for (const PredictedHolder& holder : step.holders) {
        if (holder.kind == HolderKind::kStation) continue;
        bars.row(holder.name,
                 {piece(holder.exchange_s, kExchange, "exchange"),
                  piece(holder.busy_s, kOverlapped, "reading experts"),
                  piece(holder.slack_s, kSlack, "slack")},
                 step.total_s, fmt::format("last in {:.0f} %", 100 * holder.last_share));
    }
}

void draw_purchases(const PredictReport& report, Bars& bars) {
    if (report.purchases.empty()) return;
    bars.title("Tokens per second with more");
    double most = report.prediction.tokens_per_s;
    for (const Purchase& purchase : report.purchases) most = std::max(most, purchase.tokens_per_s);
    const auto row = [&](std::string_view what, double tokens_per_s, const char* colour) {
        const std::string note = fmt::format("{:.1f}", tokens_per_s);
        bars.row(what, {{tokens_per_s, colour, note}}, most, note);
    };
    row("as it is", report.prediction.tokens_per_s, kSerial);
    for (const Purchase& purchase : report.purchases) {
        row(purchase.what, purchase.tokens_per_s, kOverlapped);
    }
}

}  // namespace

std::string predict_svg(const PredictReport& report) {
    Bars bars;
    draw_step(report.prediction.step, bars);
    draw_holders(report.prediction.step, bars);
    draw_purchases(report, bars);
    return bars.svg(fmt::format("{}: {:.1f} tokens/s predicted", report.setup.pod_name,
                                report.prediction.tokens_per_s));
}

}  // namespace k3pod
