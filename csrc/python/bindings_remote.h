// Messages as Python carries them from one process to another: tuples, in the order of the fields.
#pragma once

#include <vector>

#include <pybind11/pybind11.h>

#include "base/messages.h"

namespace duo {

// Each throws duo::error if the tuple has another form.
std::vector<node_msg>    nodes_of(const pybind11::list & tuples);
std::vector<verdict_msg> verdicts_of(const pybind11::list & tuples);
std::vector<chunk_msg>   chunks_of(const pybind11::list & tuples);

pybind11::list tuples_of(const std::vector<node_msg> & nodes);
pybind11::list tuples_of(const std::vector<verdict_msg> & verdicts);
pybind11::list tuples_of(const std::vector<chunk_msg> & chunks);

const char * name_of(finish_reason f);

// DraftSeat, VerifySeat, SharedModel (bindings_seats.cpp).
void register_seats(pybind11::module_ & m);

} // namespace duo
