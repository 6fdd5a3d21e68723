/* Offset and length to range; see protocol facts 7: Windows asks for 2^64-1 bytes and means the rest. */
#include "lock/range.h"

int hf_range_from_offset_len(struct hf_range *rangep, uint64_t offset, uint64_t len)
{
	if (offset > HF_RANGE_EOF)
		return HF_RANGE_E_FBIG;
	rangep->start = offset;
	if (len == 0 || len - 1 > HF_RANGE_EOF - offset)
		rangep->end = HF_RANGE_EOF;
	else
		rangep->end = offset + (len - 1);
	return 0;
}

uint64_t hf_range_len(struct hf_range range)
{
	return range.end == HF_RANGE_EOF ? 0 : range.end - range.start + 1;
}
