! Collectives in Fortran, with all sentinels, through the module mpi, or mpi_f08 with -DF08.
program fortran
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
  integer, parameter :: n = 20000
  integer :: ierr, rank, ranks, i, r, done, index, total, provided
  integer, allocatable :: values(:), every(:), counts(:), displs(:)
  logical :: flag
#ifdef F08
  type(MPI_Request) :: requests(3)
  type(MPI_Status) :: status, statuses(3)
#else
  integer :: requests(3), status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 3)
#endif
  integer :: indices(3)
  integer, asynchronous :: unused

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
  call check(ierr == MPI_SUCCESS, 'init')
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  allocate (values(n), every(n*ranks), counts(ranks), displs(ranks))

  values = merge(17, -1, rank == 0)
  call MPI_Bcast(values, n, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  call check(ierr == MPI_SUCCESS .and. all(values == 17), 'bcast')

  values = rank
  call MPI_Allgather(values, n, MPI_INTEGER, every, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call check(blocks(0), 'allgather')

  every = -1
  every(rank*n + 1:rank*n + n) = rank + 1
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, every, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call check(blocks(1), 'allgather in place')

  do r = 1, ranks
    counts(r) = n
    displs(r) = (r - 1)*n
  end do
  every = -1
  values = rank + 2
  call MPI_Allgatherv(values, n, MPI_INTEGER, every, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call check(blocks(2), 'allgatherv')

  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call check(ierr == MPI_SUCCESS, 'barrier')

  ! A persistent request that is never started. Calls that wait for any request ignore it.
  call MPI_Recv_init(unused, 1, MPI_INTEGER, 0, 9, MPI_COMM_SELF, requests(3), ierr)
  do i = 1, 6
    every = -1
    every(rank*n + 1:rank*n + n) = rank + i
    values = merge(i, -1, rank == 1)
    call MPI_Ibcast(values, n, MPI_INTEGER, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, every, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, &
                         requests(2), ierr)
    select case (i)
    case (1)
      call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, ierr)
    case (2)
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
      call MPI_Wait(requests(2), status, ierr)
    case (3)
      total = 0
      do while (total < 2)
        call MPI_Waitsome(3, requests, done, indices, statuses, ierr)
        call check(done == 1 .or. done == 2, 'waitsome')
        total = total + done
      end do
    case (4)
      do r = 1, 2
        call MPI_Waitany(3, requests, index, status, ierr)
        call check(index == 1 .or. index == 2, 'waitany')
      end do
      call MPI_Waitany(3, requests, index, MPI_STATUS_IGNORE, ierr)
      call check(index < 1, 'waitany without active requests') ! MPICH 4.0 returns MPI_UNDEFINED + 1 in the module mpi
      call MPI_Waitsome(3, requests, done, indices, MPI_STATUSES_IGNORE, ierr)
      call check(done == MPI_UNDEFINED, 'waitsome without active requests')
    case (5)
      flag = .false.
      do while (.not. flag)
        call MPI_Testall(2, requests, flag, MPI_STATUSES_IGNORE, ierr)
      end do
    case (6)
      do r = 1, 2
        flag = .false.
        do while (.not. flag)
          call MPI_Test(requests(r), flag, status, ierr)
        end do
      end do
    end select
    call check(ierr == MPI_SUCCESS, 'wait')
    call check(all(values == i), 'ibcast')
    call check(blocks(i), 'iallgatherv')
  end do

  call MPI_Request_free(requests(3), ierr)
  call MPI_Finalize(ierr)
  call check(ierr == MPI_SUCCESS, 'finalize')
  print '(a,i0,a)', 'rank ', rank, ' passed'

contains

  logical function blocks(offset)
    integer, intent(in) :: offset
    integer :: k
    blocks = ierr == MPI_SUCCESS
    do k = 0, ranks - 1
      blocks = blocks .and. all(every(k*n + 1:k*n + n) == k + offset)
    end do
  end function blocks

  subroutine check(ok, what)
    logical, intent(in) :: ok
    character(*), intent(in) :: what
    integer :: code
    if (.not. ok) then
      print '(a,i0,2a)', 'rank ', rank, ' failed: ', what
      call MPI_Abort(MPI_COMM_WORLD, 1, code)
    end if
  end subroutine check
end program fortran
