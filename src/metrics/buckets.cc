#include "k3pod/metrics/metrics.h"

namespace k3pod {

const std::vector<double>& ttft_buckets() {
    static const std::vector<double> bounds{.001, .005, .01, .02, .04, .06, .08, .1,
                                            .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                            20,   40,   80,  160, 640, 2560};
    return bounds;
}

const std::vector<double>& inter_token_buckets() {
    static const std::vector<double> bounds{.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                            .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
    return bounds;
}

const std::vector<double>& request_time_buckets() {
    static const std::vector<double> bounds{.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
    return bounds;
}

const std::vector<double>& exchange_buckets() {
    static const std::vector<double> bounds{10e-6,  15e-6,  20e-6,  30e-6,  50e-6,  75e-6,  100e-6,
                                            150e-6, 200e-6, 300e-6, 500e-6, 1e-3,   2e-3,   5e-3,
                                            10e-3,  20e-3,  50e-3,  100e-3, 200e-3, 500e-3, 1};
    return bounds;
}

std::vector<double> one_two_five_buckets(int64_t max) {
    std::vector<double> bounds;
    for (int64_t decade = 1; decade <= max; decade *= 10) {
        for (const int64_t mantissa : {1, 2, 5}) {
            if (mantissa * decade > max) return bounds;
            bounds.push_back(static_cast<double>(mantissa * decade));
        }
        if (decade > max / 10) break;
    }
    return bounds;
}

}  // namespace k3pod
