/* Datatypes: which are contiguous, and packing of the others. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* MPI_Pack counts bytes in an int, so data is packed in pieces. Tests use smaller ones. */
#ifndef PIECE
#define PIECE (1 << 30)
#endif

int64_t total_bytes(MPI_Count count, MPI_Datatype type) {
	MPI_Count size;
	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size < 0) {
		return -1;
	}
	return (int64_t)(count * size);
}

#if MPI_VERSION >= 4
typedef MPI_Count envelope_count;
#define GET_ENVELOPE(type, e) PMPI_Type_get_envelope_c(type, &(e)->ints, &(e)->addresses, &(e)->counts, &(e)->types, &(e)->combiner)
#else
typedef int envelope_count;
#define GET_ENVELOPE(type, e) PMPI_Type_get_envelope(type, &(e)->ints, &(e)->addresses, &(e)->types, &(e)->combiner)
#endif

struct envelope {
	envelope_count ints, addresses, counts, types;
	int combiner;
};

/* Reports whether a type is predefined. The program must not free those. */
static bool is_predefined(MPI_Datatype type) {
	struct envelope e;
	GET_ENVELOPE(type, &e);
	return e.combiner == MPI_COMBINER_NAMED || e.combiner == MPI_COMBINER_F90_REAL ||
		e.combiner == MPI_COMBINER_F90_COMPLEX || e.combiner == MPI_COMBINER_F90_INTEGER;
}

/* Returns the type from which a duplicate or a contiguous type was made, or MPI_DATATYPE_NULL for other types. */
static MPI_Datatype inner_of(MPI_Datatype type) {
	struct envelope e;
	MPI_Datatype inner = MPI_DATATYPE_NULL;
	int integer[1];
	MPI_Aint address[1];
	GET_ENVELOPE(type, &e);
	if (e.combiner != MPI_COMBINER_DUP && e.combiner != MPI_COMBINER_CONTIGUOUS) {
		return inner;
	}
#if MPI_VERSION >= 4
	MPI_Count count[1];
	PMPI_Type_get_contents_c(type, e.ints, e.addresses, e.counts, e.types, integer, address, count, &inner);
#else
	PMPI_Type_get_contents(type, e.ints, e.addresses, e.types, integer, address, &inner);
#endif
	return inner;
}

/* A type whose bytes fill its extent may still list them in another order, so only constructors that keep the order
 * count as contiguous. */
static bool is_dense(MPI_Datatype type) {
	if (is_predefined(type)) {
		MPI_Count size;
		MPI_Aint lb, extent;
		PMPI_Type_size_x(type, &size);
		PMPI_Type_get_extent(type, &lb, &extent);
		return lb == 0 && extent == size;
	}
	MPI_Datatype inner = inner_of(type);
	if (inner == MPI_DATATYPE_NULL) {
		return false;
	}
	bool dense = is_dense(inner);
	if (!is_predefined(inner)) {
		PMPI_Type_free(&inner);
	}
	return dense;
}

struct layout layout_of(MPI_Datatype type) {
	struct layout l = {.type = type, .dense = is_dense(type)};
	PMPI_Type_size_x(type, &l.size);
	PMPI_Type_get_extent(type, &l.lb, &l.extent);
	return l;
}

/* Makes a type of n bytes. */
static MPI_Datatype bytes_type(int64_t n) {
	MPI_Datatype piece, whole, type;
	PMPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
	PMPI_Type_contiguous((int)(n / PIECE), piece, &whole);
	int lengths[2] = {1, (int)(n % PIECE)};
	MPI_Aint at[2] = {0, (MPI_Aint)(n / PIECE * PIECE)};
	MPI_Datatype types[2] = {whole, MPI_BYTE};
	PMPI_Type_create_struct(2, lengths, at, types, &type);
	PMPI_Type_commit(&type);
	PMPI_Type_free(&piece);
	PMPI_Type_free(&whole);
	return type;
}

/* Copies one element as a message to this process. Messages of several threads would meet. */
static int copy_element(const void *from, MPI_Datatype from_type, void *to, MPI_Datatype to_type) {
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&one_at_a_time);
	int code = PMPI_Sendrecv(from, 1, from_type, 0, 0, to, 1, to_type, 0, 0, process.self, MPI_STATUS_IGNORE);
	pthread_mutex_unlock(&one_at_a_time);
	return code;
}

/* Packs or unpacks elements in pieces that MPI_Pack can count. */
static int convert(char *elements, MPI_Count count, const struct layout *l, char *packed, bool packs) {
	int code = MPI_SUCCESS;
	if (l->size > PIECE || elements == MPI_BOTTOM) { /* too long for MPI_Pack, or an address that MPICH's refuses */
		MPI_Datatype bytes = bytes_type((int64_t)l->size);
		for (MPI_Count i = 0; i < count && code == MPI_SUCCESS; i++) {
			code = packs ? copy_element(elements, l->type, packed, bytes) : copy_element(packed, bytes, elements, l->type);
			elements += l->extent;
			packed += l->size;
		}
		PMPI_Type_free(&bytes);
		return code;
	}
	MPI_Count most = l->size == 0 ? INT_MAX : PIECE / l->size;
	while (count > 0 && code == MPI_SUCCESS) {
		int n = (int)(count < most ? count : most), position = 0;
		int bytes = (int)(n * l->size);
		code = packs ? PMPI_Pack(elements, n, l->type, packed, bytes, &position, process.self)
			     : PMPI_Unpack(packed, bytes, &position, elements, n, l->type, process.self);
		elements += n * l->extent;
		packed += bytes;
		count -= n;
	}
	return code;
}

int pack(const void *from, MPI_Count count, const struct layout *l, char *to) {
	if (l->dense) {
		memcpy(to, from, (size_t)(count * l->size));
		return MPI_SUCCESS;
	}
	return convert((char *)(uintptr_t)from, count, l, to, true);
}

int unpack(const char *from, void *to, MPI_Count count, const struct layout *l) {
	if (l->dense) {
		memcpy(to, from, (size_t)(count * l->size));
		return MPI_SUCCESS;
	}
	return convert(to, count, l, (char *)(uintptr_t)from, false);
}

/* ---- Reductions ---- */

/* Returns Allcast's type for elements of this kind and size, or 0. */
static int number_type(MPI_Datatype type) {
	int size = 0;
	PMPI_Type_size(type, &size);
	if (type == MPI_FLOAT || type == MPI_DOUBLE || type == MPI_REAL || type == MPI_DOUBLE_PRECISION || type == MPI_REAL4 ||
		type == MPI_REAL8) {
		return size == 4 ? ALLCAST_FLOAT32 : size == 8 ? ALLCAST_FLOAT64 : 0;
	}
	static const int is_signed[] = {[1] = ALLCAST_INT8, [2] = ALLCAST_INT16, [4] = ALLCAST_INT32, [8] = ALLCAST_INT64};
	static const int is_unsigned[] = {
		[1] = ALLCAST_UINT8, [2] = ALLCAST_UINT16, [4] = ALLCAST_UINT32, [8] = ALLCAST_UINT64};
	if (size != 1 && size != 2 && size != 4 && size != 8) {
		return 0;
	}
	if (type == MPI_SIGNED_CHAR || type == MPI_SHORT || type == MPI_INT || type == MPI_LONG || type == MPI_LONG_LONG ||
		type == MPI_INT8_T || type == MPI_INT16_T || type == MPI_INT32_T || type == MPI_INT64_T || type == MPI_INTEGER ||
		type == MPI_INTEGER1 || type == MPI_INTEGER2 || type == MPI_INTEGER4 || type == MPI_INTEGER8) {
		return is_signed[size];
	}
	if (type == MPI_UNSIGNED_CHAR || type == MPI_UNSIGNED_SHORT || type == MPI_UNSIGNED || type == MPI_UNSIGNED_LONG ||
		type == MPI_UNSIGNED_LONG_LONG || type == MPI_UINT8_T || type == MPI_UINT16_T || type == MPI_UINT32_T ||
		type == MPI_UINT64_T) {
		return is_unsigned[size];
	}
	return 0;
}

/* Finds Allcast's type and operator. It returns false if Allcast has none. */
bool reduction_of(MPI_Datatype type, MPI_Op op, int *native_type, int *native_op) {
	*native_type = type == MPI_DATATYPE_NULL ? 0 : number_type(type);
	bool integer = *native_type != ALLCAST_FLOAT32 && *native_type != ALLCAST_FLOAT64;
	*native_op = op == MPI_SUM               ? ALLCAST_SUM
		: op == MPI_MIN                      ? ALLCAST_MIN
		: op == MPI_MAX                      ? ALLCAST_MAX
		: op == MPI_PROD                     ? ALLCAST_PRODUCT
		: integer && op == MPI_BAND          ? ALLCAST_AND
		: integer && op == MPI_BOR           ? ALLCAST_OR
		: integer && op == MPI_BXOR          ? ALLCAST_XOR
						     : 0;
	return *native_type != 0 && *native_op != 0;
}
