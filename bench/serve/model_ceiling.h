#pragma once

namespace k3pod::bench {

// What serving could reach at most: `batch` sequences decode in this process on one thread, without
// wire, HTTP or sampling.
struct ModelRates {
    double whole = 0;         // tokens per second with every expert at hand
    double station_part = 0;  // with experts that cost nothing, as if other cores hid them entirely
};

ModelRates measure_model(int batch, int steps);

}  // namespace k3pod::bench
