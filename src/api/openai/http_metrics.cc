#include "http_metrics.h"

#include <atomic>
#include <utility>

namespace k3pod {
namespace {

const std::vector<double>& duration_buckets() {
    static const std::vector<double> bounds{.01, .025, .05, .075, .1, .25, .5,
                                            .75, 1,    2.5, 5,    10, 30,  60};
    return bounds;
}

class CountingReply final : public HttpReply {
  public:
    CountingReply(std::shared_ptr<HttpReply> reply, MetricsRegistry& metrics, const Clock& clock,
                  std::string handler, std::string method)
        : reply_(std::move(reply)),
          metrics_(metrics),
          clock_(clock),
          labels_{{"handler", std::move(handler)}, {"method", std::move(method)}},
          arrival_(clock.now()) {}

    ~CountingReply() override { count(499); }

    void send(HttpResponse response) override {
        count(response.status);
        observe_duration();
        reply_->send(std::move(response));
    }
    void begin_stream(HttpResponse head) override {
        count(head.status);
        reply_->begin_stream(std::move(head));
    }
    void write(std::string piece) override { reply_->write(std::move(piece)); }
    void end() override {
        observe_duration();
        reply_->end();
    }
    void on_disconnect(std::function<void()> callback) override {
        reply_->on_disconnect(std::move(callback));
    }

  private:
    void count(int status) {
        if (is_counted_.exchange(true)) return;
        Labels labels = labels_;
        labels["status"] = std::to_string(status / 100) + "xx";
        metrics_.counter("http_requests_total", "HTTP requests by class of status.", labels).add();
    }
    void observe_duration() {
        metrics_
            .histogram("http_request_duration_seconds",
                       "From the whole request to the whole answer.", duration_buckets(), labels_)
            .observe(to_seconds(clock_.now() - arrival_));
    }

    const std::shared_ptr<HttpReply> reply_;  // Shared with nobody, but handed over that way.
    MetricsRegistry& metrics_;
    const Clock& clock_;
    const Labels labels_;
    const TimePoint arrival_;
    std::atomic<bool> is_counted_ = false;
};

}  // namespace

std::shared_ptr<HttpReply> make_counting_reply(std::shared_ptr<HttpReply> reply,
                                               MetricsRegistry& metrics, const Clock& clock,
                                               std::string handler, std::string method) {
    return std::make_shared<CountingReply>(std::move(reply), metrics, clock, std::move(handler),
                                           std::move(method));
}

}  // namespace k3pod
