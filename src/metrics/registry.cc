#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "k3pod/base/check.h"
#include "k3pod/metrics/metrics.h"
#include "process_metrics.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/text_serializer.h"

namespace k3pod {
namespace {

class CounterHandle final : public Counter {
  public:
    explicit CounterHandle(prometheus::Counter& target) : target_(target) {}
    void add(double v) override { target_.Increment(v); }
    double value() const override { return target_.Value(); }

  private:
    prometheus::Counter& target_;
};

class GaugeHandle final : public Gauge {
  public:
    explicit GaugeHandle(prometheus::Gauge& target) : target_(target) {}
    void set(double v) override { target_.Set(v); }
    void add(double v) override { target_.Increment(v); }
    double value() const override { return target_.Value(); }

  private:
    prometheus::Gauge& target_;
};

class HistogramHandle final : public Histogram {
  public:
    explicit HistogramHandle(prometheus::Histogram& target) : target_(target) {}
    void observe(double v) override { target_.Observe(v); }

  private:
    prometheus::Histogram& target_;
};

// One name with its handles by label set.
template <class Target, class Handle>
struct FamilyOf {
    FamilyOf(const std::string& name, const std::string& help) : family(name, help, {}) {}

    template <class... Args>
    Handle& get(const Labels& labels, const Args&... args) {
        std::unique_ptr<Handle>& slot = handles[labels];
        if (!slot) slot = std::make_unique<Handle>(family.Add(labels, args...));
        return *slot;
    }

    prometheus::Family<Target> family;
    std::map<Labels, std::unique_ptr<Handle>> handles;
};

template <class Target, class Handle>
using Families = std::map<std::string, std::unique_ptr<FamilyOf<Target, Handle>>>;

template <class Target, class Handle>
FamilyOf<Target, Handle>& find_or_add(Families<Target, Handle>& families, const std::string& name,
                                      const std::string& help) {
    auto& slot = families[name];
    if (!slot) slot = std::make_unique<FamilyOf<Target, Handle>>(name, help);
    return *slot;
}

}  // namespace

struct MetricsRegistry::Impl {
    mutable std::mutex mutex;
    Families<prometheus::Counter, CounterHandle> counters;
    Families<prometheus::Gauge, GaugeHandle> gauges;
    Families<prometheus::Histogram, HistogramHandle> histograms;

    // Names and labels are written in our own source, so a bad one is a fault of ours.
    template <class Target, class Handle, class... Args>
    Handle& get(Families<Target, Handle>& families, const std::string& name,
                const std::string& help, const Labels& labels, const Args&... args) {
        const std::lock_guard lock(mutex);
        const size_t uses = counters.count(name) + gauges.count(name) + histograms.count(name);
        K3POD_CHECK(uses == families.count(name), "one metric name is used for two types");
        try {
            return find_or_add(families, name, help).get(labels, args...);
        } catch (const std::exception& error) {
            check_failed("legal metric and label names", error.what(), __FILE__, __LINE__);
        }
    }
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::counter(const std::string& name, const std::string& help,
                                  const Labels& labels) {
    return impl_->get(impl_->counters, name, help, labels);
}

Gauge& MetricsRegistry::gauge(const std::string& name, const std::string& help,
                              const Labels& labels) {
    return impl_->get(impl_->gauges, name, help, labels);
}

Histogram& MetricsRegistry::histogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bounds, const Labels& labels) {
    return impl_->get(impl_->histograms, name, help, labels, bounds);
}

std::string MetricsRegistry::expose() const {
    std::vector<prometheus::MetricFamily> collected = collect_process_metrics();
    const auto add_all = [&](const auto& families) {
        for (const auto& [name, entry] : families) {
            for (auto& family : entry->family.Collect()) collected.push_back(std::move(family));
        }
    };
    {
        const std::lock_guard lock(impl_->mutex);
        add_all(impl_->counters);
        add_all(impl_->gauges);
        add_all(impl_->histograms);
    }
    std::sort(collected.begin(), collected.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return prometheus::TextSerializer().Serialize(collected);
}

std::vector<std::string> MetricsRegistry::names() const {
    std::vector<std::string> all = process_metric_names();
    const std::lock_guard lock(impl_->mutex);
    for (const auto& [name, entry] : impl_->counters) all.push_back(name);
    for (const auto& [name, entry] : impl_->gauges) all.push_back(name);
    for (const auto& [name, entry] : impl_->histograms) all.push_back(name);
    std::sort(all.begin(), all.end());
    return all;
}

}  // namespace k3pod
