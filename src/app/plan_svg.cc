#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "plan_report.h"
#include "readable.h"

namespace k3pod {
namespace {

constexpr int kLeft = 130, kMemoryWidth = 480, kGap = 90, kTimeWidth = 220, kRow = 26, kTop = 64;
constexpr int kWidth = kLeft + kMemoryWidth + kGap + kTimeWidth + 90;
constexpr std::string_view kExperts = "#2f6db3", kReplicas = "#7fb069", kSpare = "#e8eef4",
                           kTime = "#b3572f", kInk = "#1b2733";
constexpr std::array<std::string_view, 6> kLines = {"#5b6770", "#8894a0", "#a9b4be",
                                                    "#6f7f6a", "#94a38e", "#b9c4b4"};

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '<') {
            out += "&lt;";
        } else if (c == '&') {
            out += "&amp;";
        } else {
            out += c;
        }
    }
    return out;
}

class Drawing {
  public:
    void text(double x, double y, std::string_view text, std::string_view anchor = "start") {
        body_ += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" text-anchor="{}">{}</text>)"
                             "\n",
                             x, y, kInk, anchor, escaped(text));
    }
    // The title is shown by browsers when the mouse is over the bar.
    void bar(double x, double y, double width, std::string_view colour, std::string_view title) {
        body_ += fmt::format(
            R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="18" fill="{}"><title>{}</title></rect>)"
            "\n",
            x, y, std::max(width, 0.0), colour, escaped(title));
    }
    std::string svg(double height) const {
        return fmt::format(
            R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" viewBox="0 0 {0} {1:.0f}" font-family="sans-serif" font-size="12">)"
            "\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
            kWidth, height, body_);
    }

  private:
    std::string body_;
};

struct Part {
    std::string name;
    int64_t bytes = 0;
    std::string_view colour;
};

// What lies in a memory, from left to right.
std::vector<Part> parts_of(const PodPlan& plan, size_t holder, int64_t expert_bytes,
                           int64_t replica_bytes) {
    const MemoryPlan& memory = plan.memories[holder];
    std::vector<Part> parts;
    if (!memory.is_budget_given) {
        for (size_t i = 0; i < memory.lines.size(); ++i) {
            parts.push_back(
                {memory.lines[i].name, memory.lines[i].bytes, kLines[i % kLines.size()]});
        }
    }
    parts.push_back({"experts", expert_bytes, kExperts});
    parts.push_back({"replicas", replica_bytes, kReplicas});
    parts.push_back({"spare",
                     std::max<int64_t>(memory.budget_bytes - expert_bytes - replica_bytes, 0),
                     kSpare});
    return parts;
}

// `scale` in pixels a byte.
void draw_memory(const std::vector<Part>& parts, double y, double scale, Drawing& drawing) {
    double x = kLeft;
    for (const Part& part : parts) {
        if (part.bytes == 0) continue;
        const double width = static_cast<double>(part.bytes) * scale;
        drawing.bar(x, y, width, part.colour,
                    fmt::format("{}: {}", part.name, readable_bytes(part.bytes)));
        x += width;
    }
}

int64_t total_bytes(const std::vector<Part>& parts) {
    int64_t sum = 0;
    for (const Part& part : parts) sum += part.bytes;
    return sum;
}

}  // namespace

std::string plan_svg(const PlanReport& report) {
    const PodPlan& plan = report.plan;
    std::vector<int64_t> first(plan.memories.size(), 0), replicas(plan.memories.size(), 0);
    if (plan.placement) {
        Placement without = *plan.placement;
        without.replicas.clear();
        first = held_bytes(without, plan.shape);
        replicas = held_bytes(*plan.placement, plan.shape);
        for (size_t h = 0; h < first.size(); ++h) replicas[h] -= first[h];
    }
    std::vector<std::vector<Part>> parts;
    std::vector<int64_t> totals;
    double most_s = 0;
    for (size_t h = 0; h < plan.memories.size(); ++h) {
        parts.push_back(parts_of(plan, h, first[h], replicas[h]));
        totals.push_back(total_bytes(parts.back()));
        if (plan.solved) most_s = std::max(most_s, plan.solved->times.holder_s[h]);
    }
    const int64_t most_bytes = std::max<int64_t>(*std::ranges::max_element(totals), 1);
    const double scale = kMemoryWidth / static_cast<double>(most_bytes);
    const SizeUnit unit = size_unit(totals);
    Drawing drawing;
    drawing.text(12, 22,
                 fmt::format("{}: {} experts in {} holders", report.pod.name,
                             plan.budgets.needed_experts, plan.memories.size()));
    drawing.text(kLeft, 46,
                 fmt::format("memory, {}: reserved (grey), experts (blue), replicas, spare (pale)",
                             unit.name));
    if (plan.solved) drawing.text(kLeft + kMemoryWidth + kGap, 46, "ms a layer, mean");
    for (size_t h = 0; h < parts.size(); ++h) {
        const double y = kTop + kRow * static_cast<double>(h);
        drawing.text(kLeft - 8, y + 14, plan.memories[h].name, "end");
        draw_memory(parts[h], y, scale, drawing);
        drawing.text(kLeft + static_cast<double>(totals[h]) * scale + 6, y + 14,
                     fmt::format("{:.1f}", static_cast<double>(totals[h]) / unit.bytes));
        if (!plan.solved || most_s <= 0) continue;
        const double seconds = plan.solved->times.holder_s[h];
        const double x = kLeft + kMemoryWidth + kGap;
        drawing.bar(x, y, kTimeWidth * seconds / most_s, kTime, plan.memories[h].name);
        drawing.text(x + kTimeWidth * seconds / most_s + 6, y + 14,
                     fmt::format("{:.4f}", seconds * 1e3));
    }
    return drawing.svg(kTop + kRow * static_cast<double>(parts.size()) + 10);
}

}  // namespace k3pod
