#pragma once
// Prometheus metrics of one process. Handles are found once at construction; using one is an atomic
// operation (a histogram: a short uncontended lock). Names are listed in docs/metrics.md; a test
// compares the table with what the code registers.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace k3pod {

using Labels = std::map<std::string, std::string>;

// Any thread. Borrowed from the registry, live as long as it.
class Counter {
  public:
    virtual ~Counter() = default;
    virtual void add(double v = 1) = 0;
    virtual double value() const = 0;
};
class Gauge {
  public:
    virtual ~Gauge() = default;
    virtual void set(double v) = 0;
    virtual void add(double v) = 0;
    virtual double value() const = 0;
};
class Histogram {
  public:
    virtual ~Histogram() = default;
    virtual void observe(double v) = 0;
};

// Any thread. Comes with the process_* metrics and the memory of the machine, which are read from
// the operating system at each expose().
class MetricsRegistry {
  public:
    MetricsRegistry();
    ~MetricsRegistry();

    // The same name and labels give the same object; its first help text and bounds stay. Names as
    // exposed, e.g. "k3pod_exchange_frames_total". Aborts on an illegal name and on one name for
    // two types.
    Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
    Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
    Histogram& histogram(const std::string& name, const std::string& help,
                         const std::vector<double>& bounds, const Labels& labels = {});

    // Prometheus text format 0.0.4, families sorted by name. Changes nothing.
    std::string expose() const;
    // Registered family names, sorted.
    std::vector<std::string> names() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Bucket bounds in seconds that vLLM's dashboards expect.
const std::vector<double>& ttft_buckets();
const std::vector<double>& inter_token_buckets();
const std::vector<double>& request_time_buckets();
// 10 us to 1 s: exchange and step times.
const std::vector<double>& exchange_buckets();
// 1-2-5 series up to max.
std::vector<double> one_two_five_buckets(int64_t max);

}  // namespace k3pod
