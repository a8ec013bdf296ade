#pragma once
// What a reader should know of a figure, in sentences below it.

#include <string>
#include <vector>

#include "plot/figure.h"

namespace athanor::inline plot {

/// Returns "Each line is the mean over 61 steps"; "" if no line is smoothed.
std::string smoothing_note(const Figure& figure);

/// Returns the notes of a figure that is drawn with what is faint: how its lines are smoothed, its own notes, what its
/// picture cuts off, and what the colours of a heat map mean.
std::vector<std::string> notes_of(const Figure& figure);

}  // namespace athanor::inline plot
